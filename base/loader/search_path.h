#pragma once
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// What of this process's dynamic loader variables a program under test may inherit.
namespace base {

/// The product's own libraries: libnsa.so and its neighbours.
inline bool is_product_library(std::string_view name) { return name.starts_with("libnsa"); }

/// Whether a library search path may lead through `folder`: relative folders depend on where a
/// program is started, and one with a library of the product would replace that of the build.
inline bool may_be_searched(const std::filesystem::path& folder) {
  if (!folder.is_absolute()) return false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (is_product_library(entry.path().filename().string())) return false;
  return true;
}

/// LD_LIBRARY_PATH without the folders that must not be searched; LibTorch's folder stays.
inline std::string clean_search_path(std::string_view path) {
  std::string kept;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find_first_of(":;", begin), path.size());
    const std::string_view folder = path.substr(begin, end - begin);
    if (may_be_searched(folder)) kept += (kept.empty() ? "" : ":") + std::string(folder);
    begin = end + 1;
  }
  return kept;
}

/// The value that a program under test gets of a variable of this process; none: it gets none.
/// LD_PRELOAD, LD_AUDIT and the like put foreign code into it.
inline std::optional<std::string> inherited_value(std::string_view name, std::string_view value) {
  if (name == "LD_LIBRARY_PATH") {
    std::string kept = clean_search_path(value);
    return kept.empty() ? std::nullopt : std::optional(std::move(kept));
  }
  if (name.starts_with("LD_") || name == "GLIBC_TUNABLES") return std::nullopt;
  return std::string(value);
}

}  // namespace base
