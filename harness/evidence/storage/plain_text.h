#pragma once
#include <string>

namespace harness {

/// Text of a run's files must not steer a terminal.
inline std::string plain_text(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

}  // namespace harness
