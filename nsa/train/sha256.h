#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace nsa::train {

/// Lower-case hex SHA-256 of `bytes`.
std::string sha256_hex(std::span<const uint8_t> bytes);

/// Lower-case hex SHA-256 of a file's bytes, read in pieces. Throws InputError if it cannot be
/// read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace nsa::train
