#include "harness/schema/parse/nearest.h"

#include <algorithm>

namespace harness {

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of optimal string alignment: two before the current one.
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kLongestName =
      128;  // longer ones are no typing errors, and the table is quadratic
  if (name.size() > kLongestName) return "";
  std::string best;
  size_t best_distance = std::string::npos;
  for (const std::string& candidate : known) {
    const size_t limit = std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3);
    const size_t distance = edit_distance(name, candidate);
    if (distance <= limit && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  if (const std::string nearest = nearest_name(name, known); !nearest.empty())
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
