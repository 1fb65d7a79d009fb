#include "suites/bench/coverage/text_table.h"

#include <algorithm>

namespace suites {
namespace {

std::string markdown_row(const std::vector<std::string>& row) {
  std::string text = "|";
  for (const std::string& cell : row) text += " " + cell + " |";
  return text + "\n";
}

std::string aligned_row(const std::vector<std::string>& row, const std::vector<size_t>& widths) {
  std::string text;
  for (size_t i = 0; i < row.size(); ++i)
    text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string table_text(const std::vector<std::vector<std::string>>& rows, bool markdown) {
  std::string text;
  if (markdown) {
    text = markdown_row(rows.front()) +
           markdown_row(std::vector<std::string>(rows.front().size(), "---"));
    for (size_t i = 1; i < rows.size(); ++i) text += markdown_row(rows[i]);
    return text;
  }
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) text += aligned_row(row, widths);
  return text;
}

}  // namespace suites
