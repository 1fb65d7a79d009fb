#pragma once
#include <string>

namespace nsa {

/// Names of files, models and values that a user gave stand in what a program says: none of their
/// characters may steer the terminal.
inline std::string plain_text(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

}  // namespace nsa
