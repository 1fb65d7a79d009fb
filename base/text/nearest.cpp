#include "base/text/nearest.h"

#include <algorithm>

namespace base {

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

std::string closest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::string::npos;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  // Longer ones are no typing errors, and the table is quadratic.
  constexpr size_t kLongestName = 128;
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

}  // namespace base
