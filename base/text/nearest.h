#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace base {

/// Edit distance: insertions, deletions, substitutions and swaps of neighbours, each 1.
size_t edit_distance(std::string_view a, std::string_view b);

/// The known name closest to `name`, however far; empty when none is known. Ties go to the first.
std::string closest_name(std::string_view name, const std::vector<std::string>& known);

/// The known name closest to `name`, or empty when none is close enough to be what was meant (more
/// than a third of the longer name, at least 2, would have to change). Ties go to the first.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace base
