#pragma once
#include <cstddef>
#include <string_view>

namespace base {

/// JSON of this project never nests deeper; nlohmann copies and prints by recursion, so deeper text
/// could end the program.
inline constexpr size_t kMaxDepth = 64;

/// Whether brackets outside of strings nest deeper than kMaxDepth; `text` need not be valid JSON.
inline bool nests_too_deep(std::string_view text) {
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace base
