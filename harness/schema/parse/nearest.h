#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace harness {

/// Edit distance: insertions, deletions, substitutions and swaps of neighbours, each 1.
size_t edit_distance(std::string_view a, std::string_view b);

/// The known name closest to `name`, or empty when none is close enough to be what was meant (more
/// than a third of the longer name, at least 2, would have to change). Ties go to the first.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

/// Remedy sentence of an unknown name: `; did you mean 'X'?` or `; known: a, b, c` (at most 12).
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

/// `text` with control bytes and bytes that are not ASCII as \xNN, cut after `longest` bytes.
std::string printable(std::string_view text, size_t longest);

/// Foreign text as written in an error: printable, in quotes, cut after 80 bytes.
std::string in_quotes(std::string_view text);

}  // namespace harness
