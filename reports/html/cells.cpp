#include "reports/html/cells.h"

#include <algorithm>
#include <vector>

namespace reports::html {
namespace {

/// Whether the tag at the beginning of `text` is <NAME> or <NAME ...>.
bool is_tag(std::string_view text, std::string_view name) {
  return text.starts_with('<') && text.substr(1).starts_with(name) &&
         (text.substr(1 + name.size(), 1) == ">" || text.substr(1 + name.size(), 1) == " ");
}

/// What stands in a cell without its tags, for an attribute.
std::string words(std::string_view cell) {
  std::string out;
  bool inside = false;
  for (const char c : cell) {
    if (c == '<') inside = true;
    if (!inside) out += c == '"' ? '\'' : c;
    if (c == '>') inside = false;
  }
  return out;
}

}  // namespace

std::string with_meaning(std::string_view text) {
  std::string out;
  std::vector<std::string> headers;
  size_t column = 0;
  while (!text.empty()) {
    const size_t tag = std::min(text.find('<'), text.size());
    out += text.substr(0, tag);
    text.remove_prefix(tag);
    if (is_tag(text, "table")) headers.clear();
    if (is_tag(text, "tr")) column = 0;
    if (is_tag(text, "th")) {
      const size_t open = text.find('>');
      headers.push_back(words(text.substr(open + 1, text.find("</th>") - open - 1)));
      out += "<th scope=\"col\"";
      text.remove_prefix(3);
    } else if (is_tag(text, "td")) {
      out += "<td";
      if (column < headers.size() && !headers[column].empty())
        out += " data-label=\"" + headers[column] + "\"";
      ++column;
      text.remove_prefix(3);
    } else if (!text.empty()) {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace reports::html
