#include "reports/plots/data.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "harness/results/number.h"
#include "reports/escape.h"

namespace reports {

std::string label(std::string_view text, size_t max_chars) {
  std::string out;
  for (const char c : plain(text, max_chars)) {
    if (c == '"')
      out += "″";
    else if (c == '\\')
      out += "⧵";
    else
      out += c;
  }
  return out.find_first_not_of(' ') == std::string::npos ? "–" : out;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "NaN";
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string row(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (line.empty() ? "" : "\t") + field;
  return line + "\n";
}

std::string axis_unit(std::string_view unit) {
  constexpr std::array<std::string_view, 12> known = {
      "ms", "us", "s", "tok_s", "mib", "gb_s", "tflop_s", "pct", "ratio", "count", "bool", "nat"};
  return std::ranges::find(known, unit) == known.end() ? "" : std::string(harness::unit_text(unit));
}

std::string line_style(size_t index) {
  constexpr std::array<std::string_view, 6> colours = {"#2f7ed8", "#c8641b", "#2e8b57",
                                                       "#9467bd", "#d0393b", "#7d7d7d"};
  constexpr std::array<std::string_view, 6> marks = {"7", "5", "9", "11", "13", "6"};
  const size_t i = index % colours.size();
  return "lc rgb \"" + std::string(colours[i]) + "\" dt " + std::to_string(1 + index % 4) + " pt " +
         std::string(marks[i]);
}

std::string file_name(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 120)) {
    const bool plain_char = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                            (c >= 'A' && c <= 'Z') || c == '_' || (c == '.' && !out.empty());
    out += plain_char ? c : '-';
  }
  return out.empty() ? "plot" : out;
}

}  // namespace reports
