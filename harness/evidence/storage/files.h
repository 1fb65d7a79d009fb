#pragma once
#include <filesystem>
#include <string>
#include <string_view>

/// Reading, hashing and writing whole files. Evidence is written through a temporary name, so a
/// killed process leaves either the old file or the new one.
namespace harness {

/// The bytes of a regular file. Throws Error naming the path and the system's reason.
std::string read_bytes(const std::filesystem::path& path);

/// SHA-256 of a file's content, lower-case hex, read in pieces. Throws Error naming the path when
/// it cannot be read.
std::string sha256_file(const std::filesystem::path& path);

/// Writes `bytes` to `path` by a temporary file beside it, fsync and rename. Throws Error naming
/// path and reason (a full disk is named as such); the old file is then untouched.
void write_bytes(const std::filesystem::path& path, std::string_view bytes);

}  // namespace harness
