#include "reports/markdown/table.h"

#include <algorithm>

#include "harness/results/number.h"

namespace reports {
namespace {

constexpr size_t kWidestPadded = 40;
constexpr size_t kMostPadded = 40;  ///< rows; a longer table is not read as text

size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t to, bool right) {
  const size_t have = width(text);
  const std::string blanks(have < to ? to - have : 0, ' ');
  return right ? blanks + text : text + blanks;
}

}  // namespace

Table::Table(std::vector<std::string> headers) : headers_(std::move(headers)) {
  for (std::string& header : headers_) {
    right_.push_back(header.ends_with('>'));
    if (right_.back()) header.pop_back();
  }
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(headers_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::markdown(size_t most) const {
  if (rows_.empty()) return "";
  std::vector<size_t> widths;
  for (size_t c = 0; c < headers_.size(); ++c) {
    size_t widest = std::max<size_t>(width(headers_[c]), 3);
    for (const auto& row : rows_) widest = std::max(widest, width(row[c]));
    widths.push_back(widest <= kWidestPadded && rows_.size() <= kMostPadded ? widest : 0);
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (size_t c = 0; c < cells.size(); ++c)
      out += "| " + padded(cells[c], widths[c], right_[c]) + " ";
    out += "|\n";
  };
  line(headers_);
  for (size_t c = 0; c < headers_.size(); ++c) {
    const size_t dashes = std::max<size_t>(widths[c], 3) - (right_[c] ? 1 : 0);
    out += "| " + std::string(dashes, '-') + (right_[c] ? ": " : " ");
  }
  out += "|\n";
  for (size_t r = 0; r < std::min(most, rows_.size()); ++r) line(rows_[r]);
  if (rows_.size() > most)
    out += "\n" + harness::counted(rows_.size() - most, "more row") + ": see report.md.\n";
  return out + "\n";
}

}  // namespace reports
