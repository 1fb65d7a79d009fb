#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace base {

/// NaN and infinity, as several writers of JSON spell them.
inline bool is_non_finite(std::string_view word) {
  std::string lower;
  for (const char c : word.substr(word.starts_with('-') ? 1 : 0))
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower == "nan" || lower == "inf" || lower == "infinity";
}

/// `text` with every bare NaN and infinity as a string: strict JSON has no such numbers, and a
/// reader can then name the field that holds one. Strings remain unchanged.
inline std::string quote_non_finite(std::string_view text) {
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.';
  };
  std::string quoted;
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (in_string && text[at] == '\\') end = std::min(at + 2, text.size());
    if (!in_string && is_part(text[at]))
      while (end < text.size() && is_part(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    if (word == "\"") in_string = !in_string;
    const bool quote = !in_string && is_non_finite(word);
    quoted += quote ? '"' + std::string(word) + '"' : std::string(word);
    at = end;
  }
  return quoted;
}

}  // namespace base
