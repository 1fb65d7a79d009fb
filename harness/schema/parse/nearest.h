#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace harness {

/// Remedy sentence of an unknown name: `; did you mean 'X'?` or `; known: a, b, c` (at most 12).
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

/// `text` with control bytes and bytes that are not ASCII as \xNN, cut after `longest` bytes.
std::string printable(std::string_view text, size_t longest);

/// Foreign text as written in an error: printable, in quotes, cut after 80 bytes.
std::string in_quotes(std::string_view text);

}  // namespace harness
