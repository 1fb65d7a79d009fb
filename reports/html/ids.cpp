#include "reports/html/ids.h"

#include <algorithm>
#include <array>
#include <utility>

namespace reports::html {
namespace {

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '_' || c == '.';
}

}  // namespace

bool is_id(std::string_view text) {
  constexpr std::string_view kinds = "PCMADFSG";
  return text.size() > 2 && text.size() <= 300 && text[1] == '-' &&
         kinds.find(text[0]) != std::string_view::npos && text.find(' ') == std::string_view::npos;
}

char defined_by(std::string_view heading) {
  constexpr std::array<std::pair<std::string_view, char>, 6> sections = {
      {{"Answers", 'G'},
       {"Steps", 'P'},
       {"Acceptance criteria", 'C'},
       {"Figures", 'M'},
       {"Findings", 'F'},
       {"Open, failed, deviating", 'D'}}};
  for (const auto& [name, kind] : sections)
    if (heading == name) return kind;
  return '\0';
}

std::string anchor_of(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    if (is_plain(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '_';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

std::string Anchors::take(std::string_view wish) {
  std::string anchor = anchor_of(wish);
  if (anchor.empty()) anchor = "part";
  std::string unique = anchor;
  for (int n = 2; !taken_.insert(unique).second; ++n) unique = anchor + "-" + std::to_string(n);
  return unique;
}

}  // namespace reports::html
