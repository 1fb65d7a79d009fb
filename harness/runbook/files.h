#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace harness {

/// The whole text of a regular file. Throws ConfigError naming it.
std::string read_text(const std::filesystem::path& path);

/// Names of the *.json files of `folder` without extension, sorted. Throws ConfigError naming it.
std::vector<std::string> json_stems(const std::filesystem::path& folder);

}  // namespace harness
