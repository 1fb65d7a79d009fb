#pragma once
#include <algorithm>
#include <cstddef>
#include <string_view>

namespace base {

/// A place in a text, both counted from 1, columns in bytes.
struct Position {
  size_t line, column;
};

/// Where the byte at `offset` of `text` stands; the end where there is no such byte.
inline Position position_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t newline = before.rfind('\n');
  return {line, before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1};
}

}  // namespace base
