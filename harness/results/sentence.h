#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace harness {

/// A sentence whose figures stand as {NAME}: words(text between them) and figure(NAME), each
/// written in its own way. A brace that is not closed is text.
template <class Words, class Figure>
std::string put_together(std::string_view text, Words words, Figure figure) {
  std::string out;
  for (size_t open = text.find('{'); open != std::string_view::npos; open = text.find('{')) {
    const size_t close = text.find('}', open);
    if (close == std::string_view::npos) break;
    out += words(text.substr(0, open));
    out += figure(text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
  return out += words(text);
}

/// Whether `pattern` names `id`: the same, or a beginning of it with '*' behind.
inline bool names_id(std::string_view pattern, std::string_view id) {
  return pattern.ends_with('*') ? id.starts_with(pattern.substr(0, pattern.size() - 1))
                                : id == pattern;
}

/// The ids of `all` that one of the patterns names, in their order.
inline std::vector<std::string> named_ids(const std::vector<std::string>& patterns,
                                          const std::vector<std::string>& all) {
  std::vector<std::string> ids;
  std::ranges::copy_if(all, std::back_inserter(ids), [&](const std::string& id) {
    return std::ranges::any_of(patterns, [&](const auto& p) { return names_id(p, id); });
  });
  return ids;
}

}  // namespace harness
