#pragma once
#include <string>

namespace base {

/// Foreign text (names and values of users, files and runs) that must not control a terminal:
/// control characters of ASCII and those above it (U+0080 to U+009F), which terminals obey as well,
/// become spaces.
inline std::string plain_text(std::string text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool high =
        byte(i) == 0xc2 && i + 1 < text.size() && byte(i + 1) >= 0x80 && byte(i + 1) < 0xa0;
    if (high) text[i + 1] = ' ';
    if (high || byte(i) < 0x20 || byte(i) == 0x7f) text[i] = ' ';
  }
  return text;
}

}  // namespace base
