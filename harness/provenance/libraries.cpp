#include "harness/provenance/libraries.h"

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "harness/provenance/git.h"

namespace harness {
namespace fs = std::filesystem;

std::optional<fs::path> find_library(const std::string& file, const std::string& folder) {
  std::error_code error;
  const char* paths = std::getenv("LD_LIBRARY_PATH");
  std::istringstream list(paths == nullptr ? "" : paths);
  for (std::string path; std::getline(list, path, ':');) {
    if (path.empty()) continue;
    // A wheel of LibTorch finds its CUDA libraries beside its own folder.
    for (const fs::path& place : {fs::path(path), fs::path(path) / "../.." / folder})
      if (fs::exists(place / file, error)) return (place / file).lexically_normal();
  }
  const fs::path python = this_checkout().value_or(fs::current_path()) / ".venv/lib";
  for (const auto& version : fs::directory_iterator(python, error)) {
    fs::path found = version.path() / "site-packages" / folder / file;
    if (fs::exists(found, error)) return found;
  }
  return std::nullopt;
}

std::string libtorch_version() {
  const auto library = find_library("libtorch_cpu.so", "torch/lib");
  if (!library) return "unknown";
  std::ifstream file(library->parent_path().parent_path() / "version.py");
  static const std::regex kVersion(R"re(__version__ = '(\d+\.\d+)\.)re");
  std::smatch found;
  for (std::string line; std::getline(file, line);)
    if (std::regex_search(line, found, kVersion)) return found[1];
  return "unknown";
}

}  // namespace harness
