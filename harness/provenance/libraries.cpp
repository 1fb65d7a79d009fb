#include "harness/provenance/libraries.h"

#include <cstdlib>
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

}  // namespace harness
