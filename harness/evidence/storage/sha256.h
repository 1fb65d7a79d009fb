#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace harness {

/// SHA-256 of `bytes`, lower-case hex (FIPS 180-4).
std::string sha256_hex(std::string_view bytes);

/// SHA-256 of a file's content, read in pieces. Throws Error naming the path when it cannot be
/// read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace harness
