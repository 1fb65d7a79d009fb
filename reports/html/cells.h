#pragma once
#include <string>
#include <string_view>

namespace reports::html {

/// Tables as cmark writes them, with what their cells mean: header cells say that they head a
/// column, and every other cell carries the name of its column, which a narrow screen shows beside
/// it (style.h). Text of cells is escaped by now and cannot hold a tag.
std::string with_meaning(std::string_view tables);

}  // namespace reports::html
