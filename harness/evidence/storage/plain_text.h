#pragma once
#include <string>

namespace harness {

/// Text of a run's files must not steer a terminal: no control character of ASCII, nor one of those
/// above it (U+0080 to U+009F), which terminals obey as well.
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

}  // namespace harness
