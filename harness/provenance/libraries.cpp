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
  for (std::string path; std::getline(list, path, ':');)
    if (!path.empty() && fs::exists(fs::path(path) / file, error)) return fs::path(path) / file;
  const fs::path python = this_checkout().value_or(fs::current_path()) / ".venv/lib";
  for (const auto& version : fs::directory_iterator(python, error)) {
    fs::path found = version.path() / "site-packages" / folder / file;
    if (fs::exists(found, error)) return found;
  }
  return std::nullopt;
}

}  // namespace harness
