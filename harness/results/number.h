#pragma once
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

/// The one formatter of numbers for people. Fixed rules, C locale, no state: the same bytes on
/// every machine, so that reports can be compared byte by byte.
///
///  - 4 significant digits, trailing zeros dropped: 1.6231 -> "1.623", 2.0 -> "2"
///  - whole numbers in full, thousands separated: 357123 -> "357,123"
///  - from 10,000 up without decimals; below 1e-4 and from 1e15 up scientific: "1.5e-07"
///  - infinities and NaN, which results.json cannot hold, as words
namespace harness {

namespace number_detail {

inline std::string scientific(double value, int digits) {
  std::array<char, 48> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::scientific, digits - 1)
                       .ptr;
  return {text.data(), end};
}

/// "1.500e-07" -> "1.5e-07", "2.000" -> "2"
inline std::string drop_zeros(std::string text) {
  const size_t exponent = text.find('e');
  std::string tail = exponent == std::string::npos ? "" : text.substr(exponent);
  text.resize(text.size() - tail.size());
  if (text.find('.') != std::string::npos) {
    text.resize(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text + tail;
}

/// Commas every three digits of the whole part, from five digits up: "12345.6" -> "12,345.6"
inline std::string group_thousands(std::string text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  size_t whole = text.find('.');
  if (whole == std::string::npos) whole = text.size();
  if (whole - sign < 5) return text;
  for (size_t i = whole; i > sign + 3;) text.insert(i -= 3, ",");
  return text;
}

inline std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, decimals)
                       .ptr;
  return {text.data(), end};
}

}  // namespace number_detail

/// The double nearest to `value` written with `digits` significant decimal digits.
inline double round_significant(double value, int digits) {
  if (!std::isfinite(value)) return value;
  return std::strtod(number_detail::scientific(value, digits).c_str(), nullptr);
}

/// A number by the rules above, without unit; `digits` significant digits.
inline std::string format_number(double value, int digits = 4) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e15 || size < 1e-4)
    return number_detail::drop_zeros(number_detail::scientific(value, digits));
  if (size == std::floor(size))
    return number_detail::group_thousands(number_detail::fixed(value, 0));
  // The exponent after rounding: 9.9999 at 4 digits is 10, with two digits before the point.
  const double rounded = round_significant(size, digits);
  const int exponent = static_cast<int>(std::floor(std::log10(rounded) + 1e-12));
  const int decimals = rounded >= 1e4 && digits <= 5 ? 0 : std::max(0, digits - 1 - exponent);
  return number_detail::group_thousands(
      number_detail::drop_zeros(number_detail::fixed(value, decimals)));
}

/// A measured figure of `digits` significant digits. Zeros at its end stay where they were rounded
/// to: 0.9962 at 3 digits is "0.996", 1.0039 "1.00"; 2, which is exact, "2".
inline std::string format_rounded(double value, int digits = 3) {
  const double rounded = round_significant(value, digits);
  const double size = std::abs(rounded);
  if (rounded == value || !(size >= 1e-4 && size < 1e4)) return format_number(rounded, digits);
  const int exponent = static_cast<int>(std::floor(std::log10(size) + 1e-12));
  return number_detail::group_thousands(
      number_detail::fixed(rounded, std::max(0, digits - 1 - exponent)));
}

/// A unit of the closed list as people write it: "tok_s" -> "tok/s"; "" for count, ratio and bool.
inline std::string_view unit_text(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> table = {
      {{"ms", "ms"},
       {"us", "\u00b5s"},
       {"s", "s"},
       {"tok_s", "tok/s"},
       {"mib", "MiB"},
       {"gb_s", "GB/s"},
       {"tflop_s", "TFLOP/s"},
       {"pct", "%"},
       {"ratio", ""},
       {"count", ""},
       {"bool", ""},
       {"nat", "nat"}}};
  for (const auto& [name, text] : table)
    if (name == unit) return text;
  return unit;
}

/// "2.13 ms", "0.42 s", "12.3 s", "3 min 05 s", "2 h 07 min", "3 d 04 h"
inline std::string format_duration(double seconds) {
  if (seconds > 0 && seconds < .1) return format_number(seconds * 1000, 3) + " ms";
  if (!(seconds >= 0) || seconds >= 1e9 || seconds < 59.95) return format_number(seconds, 3) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const auto pad = [](int64_t v) { return (v < 10 ? "0" : "") + std::to_string(v); };
  if (whole < 3600) return std::to_string(whole / 60) + " min " + pad(whole % 60) + " s";
  if (whole < 172'800)
    return std::to_string(whole / 3600) + " h " + pad(whole % 3600 / 60) + " min";
  return std::to_string(whole / 86400) + " d " + pad(whole % 86400 / 3600) + " h";
}

/// Number and unit: "1.623", "4.35 ms", "357,123 tok/s"; a bool is "yes" or "no"; from two minutes
/// up "26,465 s (7 h 21 min)".
inline std::string format_value(double value, std::string_view unit, int digits = 4) {
  if (unit == "bool" && (value == 0 || value == 1)) return value == 1 ? "yes" : "no";
  std::string text = format_number(value, digits);
  if (const std::string_view shown = unit_text(unit); !shown.empty()) {
    text += ' ';
    text += shown;
  }
  if (unit == "s" && value >= 120 && value < 1e9) text += " (" + format_duration(value) + ")";
  return text;
}

/// A number of things: "1 step", "2 steps", "0 more tables".
inline std::string counted(size_t count, std::string_view thing) {
  return format_number(static_cast<double>(count)) + " " + std::string(thing) +
         (count == 1 ? "" : "s");
}

/// Two numbers of one unit, with as many digits as it takes to distinguish them when they differ,
/// so that a rounded figure never contradicts the comparison it stands in.
inline std::pair<std::string, std::string> format_apart(double a, double b, std::string_view unit) {
  for (int digits = 4;; ++digits) {
    std::pair<std::string, std::string> texts{format_value(a, unit, digits),
                                              format_value(b, unit, digits)};
    if (digits == 17 || !(a != b) || texts.first != texts.second) return texts;
  }
}

/// "[1.59, 1.66]"
inline std::string format_interval(double lo, double hi, int digits = 4) {
  return "[" + format_number(lo, digits) + ", " + format_number(hi, digits) + "]";
}

/// "512 B", "12.3 KiB", "4.6 GiB"
inline std::string format_bytes(int64_t bytes) {
  double size = static_cast<double>(bytes);
  constexpr std::array<std::string_view, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t u = 0;
  for (; size >= 1024 && u + 1 < units.size(); ++u) size /= 1024;
  return format_number(size, 3) + " " + std::string(units[u]);
}

}  // namespace harness
