#include "harness/provenance/build/libraries.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "harness/provenance/build/git.h"

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
  const fs::path checkout = this_checkout().value_or(fs::current_path());
  for (const fs::path& root : {checkout, main_worktree(checkout)})
    for (const auto& version : fs::directory_iterator(root / ".venv/lib", error)) {
      fs::path found = version.path() / "site-packages" / folder / file;
      if (fs::exists(found, error)) return found;
    }
  return std::nullopt;
}

std::string libtorch_version() {
  const auto library = find_library("libtorch_cpu.so", "torch/lib");
  if (!library) return "unknown";
  std::ifstream file(library->parent_path().parent_path() / "version.py");
  const std::string before = "__version__ = '";  // of 2.11.0+cu130 the first two numbers
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(before);
    if (at == std::string::npos) continue;
    const std::string version = line.substr(at + before.size());
    const size_t first = version.find_first_not_of("0123456789");
    if (first == 0 || first == std::string::npos || version[first] != '.') continue;
    const size_t second = version.find_first_not_of("0123456789", first + 1);
    if (second > first + 1 && second != std::string::npos && version[second] == '.')
      return version.substr(0, second);
  }
  return "unknown";
}

}  // namespace harness
