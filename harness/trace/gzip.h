#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace harness::trace {

/// Writes `text`, compressed by gzip where the name ends in .gz; equal texts, equal files. Throws
/// harness::Error naming the file when it cannot be written.
void write_text(const std::filesystem::path& file, std::string_view text);

/// Text of a file, plain or compressed by gzip. Throws harness::Error naming the file when it
/// cannot be read, is damaged, or holds more than `most_bytes` of text.
std::string read_maybe_gzip(const std::filesystem::path& file, size_t most_bytes);

}  // namespace harness::trace
