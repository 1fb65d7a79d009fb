#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

/// Reading and writing whole files. Evidence is written through a temporary name, so a killed
/// process leaves either the old file or the new one.
namespace harness {

/// The bytes of a regular file. Throws Error naming the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

/// Writes `bytes` to `path` by a temporary file beside it, fsync and rename. Throws Error naming
/// path and reason (a full disk is said as such); the old file is then untouched.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// JSON as evidence stores it: keys sorted, two spaces, one trailing newline; bytes that are not
/// UTF-8 become U+FFFD.
std::string canonical_text(const nlohmann::json& value);

/// The same on one line, without a newline: what hashes are made of.
std::string canonical_line(const nlohmann::json& value);

}  // namespace harness
