#pragma once
#include <string>
#include <string_view>

namespace reports::html {

/// Tables as cmark writes them, with what their cells mean: header cells say that they head a
/// column, and the table carries the names and the alignment of its columns, which a narrow screen
/// shows beside each cell (style.h). Text of cells is escaped by now and cannot hold a tag.
std::string with_meaning(std::string_view tables);

}  // namespace reports::html
