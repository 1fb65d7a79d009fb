#include "reports/html/cells.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace reports::html {
namespace {

constexpr std::string_view kRight = " align=\"right\"";
constexpr size_t kNamedColumns = 24;  ///< that style.h has rules for

/// Whether the tag at the beginning of `text` is <NAME> or <NAME ...>.
bool is_tag(std::string_view text, std::string_view name) {
  return text.starts_with('<') && text.substr(1).starts_with(name) &&
         (text.substr(1 + name.size(), 1) == ">" || text.substr(1 + name.size(), 1) == " ");
}

/// How much of `text` begins with what HTML lets a table leave out: the ends of cells, rows and
/// parts, and the line breaks between cells. They would be a seventh of the page.
size_t needless(std::string_view text) {
  constexpr std::array<std::string_view, 5> kEnds = {"</td>\n", "</th>\n", "</tr>", "</thead>\n",
                                                     "</tbody>\n"};
  for (const std::string_view end : kEnds)
    if (text.starts_with(end)) return end.size();
  return 0;
}

/// What stands in a cell without its tags, as text of a CSS string in an attribute: letters,
/// digits, spaces and what is beyond ASCII stay, the rest is escaped by its number. Entities are
/// put back into characters first.
std::string css_words(std::string_view cell) {
  struct Entity {
    std::string_view name, text;
  };
  constexpr std::array<Entity, 4> kEntities = {
      {{"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}}};
  std::string plain;
  for (bool inside = false; !cell.empty();) {
    const auto* const entity = std::ranges::find_if(
        kEntities, [&](const Entity& each) { return cell.starts_with(each.name); });
    if (cell.front() == '<') inside = true;
    const bool ends = inside && cell.front() == '>';
    const bool known = !inside && entity != kEntities.end();
    if (!inside) plain += known ? entity->text : cell.substr(0, 1);
    if (ends) inside = false;
    cell.remove_prefix(known ? entity->name.size() : 1);
  }
  std::string out;
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : plain) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == ' ' || byte >= 0x80)
      out += c;
    else
      out += std::string("\\") + kHex[byte >> 4] + kHex[byte & 15] + " ";
  }
  return out;
}

/// Name and alignment of the columns of the table that `text` begins with, as variables that the
/// style of the page shows (style.h): --c1 is what column 1 is called, --a1 and --w1 how it is
/// aligned and wrapped. Given once a table: in every cell they would be a third of the page.
std::string column_style(std::string_view text) {
  std::string style;
  std::string_view head = text.substr(0, std::min(text.find("</tr>"), text.size()));
  for (size_t column = 1; column <= kNamedColumns; ++column) {
    const size_t at = head.find("<th");
    if (at == std::string_view::npos) break;
    head.remove_prefix(at);
    if (!is_tag(head, "th")) {  // <thead>
      head.remove_prefix(3);
      --column;
      continue;
    }
    const size_t open = std::min(head.find('>'), head.size() - 1);
    const std::string name =
        css_words(head.substr(open + 1, std::min(head.find("</th>"), head.size()) - open - 1));
    const std::string number = std::to_string(column);
    if (!name.empty()) style += "--c" + number + ":'" + name + "';";
    if (head.substr(0, open).find(kRight) != std::string_view::npos)
      style += "--a" + number + ":right;--w" + number + ":nowrap;";
    head.remove_prefix(open + 1);
  }
  return style;
}

}  // namespace

std::string with_meaning(std::string_view text) {
  std::string out;
  size_t column = 0;
  while (!text.empty()) {
    const size_t tag = std::min(text.find('<'), text.size());
    out += text.substr(0, tag);
    text.remove_prefix(tag);
    if (const size_t size = needless(text); size > 0) {
      text.remove_prefix(size);
      continue;
    }
    constexpr std::string_view kRow = "<tr>\n";
    if (text.starts_with(kRow)) {
      column = 0;
      out += "<tr>";
      text.remove_prefix(kRow.size());
    } else if (is_tag(text, "table")) {
      const std::string style = column_style(text);
      out += style.empty() ? "<table" : "<table style=\"" + style + "\"";
      text.remove_prefix(6);
    } else if (is_tag(text, "th")) {
      out += "<th scope=\"col\"";
      text.remove_prefix(3);
    } else if (is_tag(text, "td")) {
      out += "<td";
      text.remove_prefix(3);
      if (++column <= kNamedColumns && text.starts_with(kRight)) text.remove_prefix(kRight.size());
    } else if (!text.empty()) {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace reports::html
