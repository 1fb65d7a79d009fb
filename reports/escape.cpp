#include "reports/escape.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace reports {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

/// Code points of UTF-8 text; every byte that is not part of a valid sequence becomes U+FFFD.
std::vector<uint32_t> decode(std::string_view text) {
  std::vector<uint32_t> points;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const int extra = lead < 0x80       ? 0
                      : lead >> 5 == 6  ? 1
                      : lead >> 4 == 14 ? 2
                      : lead >> 3 == 30 ? 3
                                        : -1;
    uint32_t point = extra < 0 ? kReplacement : extra == 0 ? lead : lead & (0x3Fu >> extra);
    bool valid = extra >= 0 && i + static_cast<size_t>(extra) < text.size();
    for (int k = 1; valid && k <= extra; ++k) {
      const auto next = static_cast<uint8_t>(text[i + static_cast<size_t>(k)]);
      valid = next >> 6 == 2;
      point = point << 6 | (next & 0x3Fu);
    }
    constexpr std::array<uint32_t, 4> smallest = {0, 0x80, 0x800, 0x10000};
    valid = valid && point >= smallest[static_cast<size_t>(extra)] && point <= 0x10FFFF &&
            !(point >= 0xD800 && point <= 0xDFFF);
    points.push_back(valid ? point : kReplacement);
    i += valid ? static_cast<size_t>(extra) + 1 : 1;
  }
  return points;
}

void append(std::string& out, uint32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | point >> 6);
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | point >> 12);
    out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | point >> 18);
    out += static_cast<char>(0x80 | (point >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}

bool is_control(uint32_t point) { return point < 0x20 || (point >= 0x7F && point < 0xA0); }

/// Characters that show nothing or reorder what is shown.
bool is_invisible(uint32_t point) {
  return point == 0xAD || (point >= 0x200B && point <= 0x200F) ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2060 && point <= 0x206F) ||
         point == 0xFEFF || point == 0xFFFE || point == 0xFFFF ||
         (point >= 0xE0000 && point <= 0xE0FFF);
}

/// Index behind the ANSI escape sequence that starts at `i` (an ESC).
size_t skip_ansi(const std::vector<uint32_t>& points, size_t i) {
  ++i;
  if (i >= points.size() || points[i] != '[') return i;
  for (++i; i < points.size(); ++i)
    if (points[i] >= 0x40 && points[i] <= 0x7E) return i + 1;
  return i;
}

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool has_only(std::string_view text, std::string_view extra) {
  return std::ranges::all_of(
      text, [&](char c) { return is_alnum(c) || extra.find(c) != std::string_view::npos; });
}

bool ends_with_www(std::string_view text) {
  return text.size() >= 3 && std::ranges::all_of(text.substr(text.size() - 3),
                                                 [](char c) { return c == 'w' || c == 'W'; });
}

/// `text[i]` as inert Markdown. An invisible blank breaks what would become a link or a mention.
std::string escape_char(std::string_view text, size_t i) {
  constexpr const char* kBreak = "&#8203;";
  const char c = text[i];
  const char before = i > 0 ? text[i - 1] : ' ';
  const char after = i + 1 < text.size() ? text[i + 1] : ' ';
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':  // a comparison stays readable, markup does not stay markup
      return i > 0 && before == ' ' && (after == ' ' || after == '=') ? ">" : "&gt;";
    case '\\':
    case '`':
    case '*':
    case '[':
    case ']':
    case '|':
    case '~':
    case '$':
      return std::string("\\") + c;
    case '_':
      return is_alnum(before) && is_alnum(after) ? "_" : "\\_";
    case '@':
      return std::string("@") + kBreak;
    case '#':
      return (i == 0 ? "\\#" : "#") + std::string(is_alnum(after) ? kBreak : "");
    case ':':
      return after == '/' ? std::string(":") + kBreak : ":";
    case '.':
      return ends_with_www(text.substr(0, i)) ? std::string(kBreak) + "." : ".";
    case '-':
    case '+':
    case '=':
      return i == 0 && (after == ' ' || after == c) ? std::string("\\") + c : std::string(1, c);
    default:
      return std::string(1, c);
  }
}

}  // namespace

std::string plain(std::string_view text, size_t max_chars) {
  const std::vector<uint32_t> points = decode(text);
  std::string out;
  size_t shown = 0;
  for (size_t i = 0; i < points.size();) {
    if (points[i] == 0x1B) {
      i = skip_ansi(points, i);
      continue;
    }
    const uint32_t point = points[i++];
    const bool blank = point == '\n' || point == '\r' || point == '\t';
    if ((is_control(point) && !blank) || is_invisible(point)) continue;
    if (shown + 1 == max_chars && i < points.size()) return out + "…";
    append(out, blank ? ' ' : point);
    ++shown;
  }
  return out;
}

std::string escape(std::string_view text, size_t max_chars) {
  const std::string clean = plain(text, max_chars);
  std::string out;
  for (size_t i = 0; i < clean.size(); ++i) out += escape_char(clean, i);
  // "1. " and "1) " start a list; "1.5" does not.
  const size_t digits = clean.find_first_not_of("0123456789");
  if (digits != std::string::npos && digits > 0 && (clean[digits] == '.' || clean[digits] == ')') &&
      (digits + 1 == clean.size() || clean[digits + 1] == ' '))
    out.insert(digits, "\\");
  return out;
}

std::string code(std::string_view text) {
  if (!text.empty() && text.size() <= 200 && has_only(text, "-_.,:/+=%*~()[]{} ") &&
      text.front() != ' ' && text.back() != ' ')
    return "`" + std::string(text) + "`";
  return "<code>" + escape(text) + "</code>";
}

std::string file_link(std::string_view text, std::string_view path) {
  const bool inside = !path.empty() && has_only(path, "-_./+=") && path.front() != '/' &&
                      path.find("..") == std::string_view::npos &&
                      path.find("//") == std::string_view::npos;
  if (!inside) return code(text);
  return "[" + escape(text) + "](" + std::string(path) + ")";
}

std::string fenced(std::string_view text, std::string_view language) {
  std::string body, line;
  size_t longest = 2, run = 0;
  const auto flush = [&] {
    body += plain(line, 4000) + "\n";
    line.clear();
  };
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
    if (c == '\n')
      flush();
    else
      line += c;
  }
  if (!line.empty()) flush();
  const std::string fence(longest + 1, '`');
  return fence + std::string(language) + "\n" + body + fence + "\n";
}

}  // namespace reports
