#include "harness/schema/parse/nearest.h"

#include <algorithm>

#include "base/text/nearest.h"

namespace harness {

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  if (const std::string nearest = base::nearest_name(name, known); !nearest.empty())
    return "; did you mean '" + nearest + "'?";
  if (known.empty()) return "; none is known here";
  constexpr size_t kListed = 12;
  std::string text = "; known: ";
  for (size_t i = 0; i < std::min(known.size(), kListed); ++i) text += (i ? ", " : "") + known[i];
  return known.size() > kListed ? text + ", ..." : text;
}

std::string printable(std::string_view text, size_t longest) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > longest ? "..." : "");
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kLongest = 80;
  return "'" + printable(text, kLongest) + "'";
}

}  // namespace harness
