#pragma once
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace base {

/// The number that `text` is: digits only, so that no sign, space or word becomes a number. Throws
/// std::invalid_argument naming `flag`, the text and what to give instead.
inline uint64_t read_whole_number(const std::string& flag, const std::string& text,
                                  uint64_t otherwise) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument(flag + " must be a whole number from 0 to 2^64 - 1, got '" + text +
                                "'; leave it out for " + std::to_string(otherwise));
  return number;
}

}  // namespace base
