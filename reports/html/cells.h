#pragma once
#include <string>
#include <string_view>

namespace reports::html {

/// Adds attributes to the tables that cmark writes: header cells get scope="col", and the table
/// gets the names and the alignment of its columns, which a narrow screen shows beside each cell
/// (style.h). Tags that a browser closes by itself go. Text of cells is already escaped and cannot
/// hold a tag.
std::string with_meaning(std::string_view tables);

}  // namespace reports::html
