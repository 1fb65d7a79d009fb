#include "harness/process/os/mapped_libraries.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

#include "base/loader/search_path.h"
#include "harness/evidence/storage/files.h"

namespace harness {
namespace {

bool is_recorded(std::string_view name) {
  static constexpr auto kPrefixes = std::to_array<std::string_view>({"libtorch", "libc10"});
  if (name.find(".so") == std::string_view::npos) return false;
  return base::is_product_library(name) ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

/// sha256 of a file; empty when it is gone.
std::string content_of(const std::string& path) {
  using Version = std::tuple<std::string, dev_t, ino_t, off_t, time_t, long>;
  static std::mutex one_at_a_time;  // ranks are watched by a thread each
  static std::map<Version, std::string> known;
  const std::lock_guard lock(one_at_a_time);
  struct stat now{};
  if (::stat(path.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) return "";
  const Version version{path,        now.st_dev,         now.st_ino,
                        now.st_size, now.st_ctim.tv_sec, now.st_ctim.tv_nsec};
  const auto found = known.find(version);
  return found != known.end() ? found->second : known[version] = sha256_file(path);
}

}  // namespace

std::set<std::string> mapped_libraries(pid_t pid) {
  std::set<std::string> paths;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const std::string path = line.substr(at);
    if (is_recorded(std::filesystem::path(path).filename().string())) paths.insert(path);
  }
  return paths;
}

std::vector<LoadedLibrary> identified(const std::set<std::string>& paths) {
  std::vector<LoadedLibrary> libraries;
  for (const std::string& path : paths)
    libraries.push_back({std::filesystem::path(path).filename().string(), content_of(path)});
  std::ranges::sort(libraries, {}, &LoadedLibrary::name);
  return libraries;
}

}  // namespace harness
