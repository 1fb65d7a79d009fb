#pragma once
#include <string>
#include <string_view>
#include <vector>

/// Pieces of gnuplot data files and scripts.
namespace reports {

/// Text as one field of a data file: `plain`, without quotes and backslashes, never empty.
std::string label(std::string_view text, size_t max_chars = 44);

/// A number as gnuplot reads it; "NaN" (no point) when it is not finite.
std::string number(double value);

/// One line of fields.
std::string row(const std::vector<std::string>& fields);

/// A unit of the closed list as text for an axis; empty for any other.
std::string axis_unit(std::string_view unit);

/// Colours and marks of the lines in order; both differ, so that the colour is not needed.
std::string line_style(size_t index);

/// A file name from any text: letters, digits, - _ . stay, everything else is a dash.
std::string file_name(std::string_view text);

}  // namespace reports
