#include "harness/runbook/files.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "harness/schema/error.h"

namespace harness {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::error_code error;
  std::ifstream file;
  if (fs::is_regular_file(path, error)) file.open(path, std::ios::binary);  // a pipe would wait
  if (!file.is_open())
    throw ConfigError(path.string(), 0, 0, "cannot be read; want a file with JSON in it");
  // A file that people write is never so large; reading one for minutes would look like a hang.
  constexpr uintmax_t kMostBytes = uintmax_t{16} << 20;
  if (const auto bytes = fs::file_size(path, error); !error && bytes > kMostBytes)
    throw ConfigError(path.string(), 0, 0,
                      "has " + std::to_string(bytes) + " bytes; want at most 16 MiB");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> json_stems(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  if (error) throw ConfigError(folder.string(), 0, 0, "cannot be listed: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace harness
