#pragma once
#include <string>
#include <vector>

namespace suites {

/// Rows of cells under a header, as a table of Markdown or in aligned columns.
std::string table_text(const std::vector<std::vector<std::string>>& rows, bool markdown);

}  // namespace suites
