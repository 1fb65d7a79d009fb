#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "harness/results/number.h"

/// Figures for people: three significant digits, a unit of the right size, factors for multiples.
/// Exact counts stay exact. "25.3 ms", "1.2 s", "283k tok/s", "199x".
namespace harness {

/// What a figure is divided by, what stands at each of its numbers, and the unit behind.
struct Scale {
  double divisor = 1;
  std::string suffix;
  std::string prefix = "";
};

/// The unit in which `value` is printed. `multiple`: a ratio that is shown as a factor.
inline Scale scale_of(double value, std::string_view unit, bool multiple = false) {
  const double size = std::abs(value);
  if (unit == "ratio") return {1, multiple ? "x" : ""};
  if (unit == "pct") return size > 1000 ? Scale{100, "x"} : Scale{1, " %"};
  if (unit == "us" && size >= 1e6) return {1e6, " s"};
  if (unit == "us" && size >= 1000) return {1000, " ms"};
  if (unit == "ms" && size >= 1e4) return {1000, " s"};
  if (unit == "ms" && size > 0 && size < .1) return {.001, " \u00b5s"};
  if (unit == "s" && size >= 7200) return {3600, " h"};
  if (unit == "s" && size >= 120) return {60, " min"};
  if (unit == "mib" && size >= 10240) return {1024, " GiB"};
  if (unit == "tok_s" && size >= 1e6) return {1e6, " tok/s", "M"};
  if (unit == "tok_s" && size >= 1e4) return {1000, " tok/s", "k"};
  const std::string_view text = unit_text(unit);
  return {1, text.empty() ? "" : " " + std::string(text)};
}

/// A value with its interval, both in the unit of the value: "25.3 ms [24.9, 25.8]",
/// "979k tok/s [948k, 1.01M]".
inline std::string plain_figure(double value, std::string_view unit, bool multiple = false,
                                std::optional<double> lo = {}, std::optional<double> hi = {},
                                int digits = 3) {
  if (unit == "bool" && (value == 0 || value == 1)) return value == 1 ? "yes" : "no";
  if (unit == "count") return format_number(value);
  const Scale scale = scale_of(value, unit, multiple);
  const auto written = [&](double x) {
    const Scale own = scale_of(x, unit, multiple);
    const Scale& of = own.prefix == scale.prefix ? scale : own;
    return format_rounded(x / of.divisor, digits) + of.prefix;
  };
  std::string text = written(value) + scale.suffix;
  if (lo && hi) text += " [" + written(*lo) + ", " + written(*hi) + "]";
  return text;
}

/// The fewest digits, three or more, that distinguish two values that differ.
inline int digits_apart(double a, double b, std::string_view unit) {
  int digits = 3;
  const double divisor = scale_of(a, unit).divisor;
  while (digits < 17 && a != b &&
         round_significant(a / divisor, digits) == round_significant(b / divisor, digits))
    ++digits;
  return digits;
}

}  // namespace harness
