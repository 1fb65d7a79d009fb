#include "nsa/train/ranks/rank_agreement.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace nsa::train {
namespace {

constexpr size_t kMostNamed = 8;  ///< differences that a message lists

std::string value_of(const RankSettings& settings, const std::string& name) {
  const auto found = settings.find(name);
  if (found == settings.end()) return "absent";
  return found->second.empty() ? "\"\"" : found->second;
}

std::string kind_of(const std::string& name) {
  return name.starts_with("NSA_") ? "switch " : "option ";
}

std::set<std::string> names_of(const RankSettings& a, const RankSettings& b) {
  std::set<std::string> names;
  for (const auto& [name, _] : a) names.insert(name);
  for (const auto& [name, _] : b) names.insert(name);
  return names;
}

/// "option lr is 0.003 on rank 0 and 0.1 on rank 2", one for each setting that differs.
std::vector<std::string> differences(const std::vector<RankSettings>& of_ranks) {
  std::vector<std::string> found;
  for (size_t rank = 1; rank < of_ranks.size(); ++rank)
    for (const std::string& name : names_of(of_ranks[0], of_ranks[rank])) {
      const std::string first = value_of(of_ranks[0], name), here = value_of(of_ranks[rank], name);
      if (first != here)
        found.push_back(kind_of(name) + name + " is " + first + " on rank 0 and " + here +
                        " on rank " + std::to_string(rank));
    }
  return found;
}

}  // namespace

std::string describe_disagreement(const std::vector<RankSettings>& of_ranks) {
  const std::vector<std::string> found = differences(of_ranks);
  if (found.empty()) return "";
  std::string text = kUnlikeRanks;
  for (size_t i = 0; i < std::min(found.size(), kMostNamed); ++i)
    text += (i > 0 ? "; " : "") + found[i];
  if (found.size() > kMostNamed)
    text += "; and " + std::to_string(found.size() - kMostNamed) + " more";
  return text + "; start every rank with the same options, switches and corpus";
}

std::string to_text(const RankSettings& settings) {
  return nlohmann::json(settings).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankSettings settings_of_text(const std::string& text) {
  return nlohmann::json::parse(text).get<RankSettings>();
}

}  // namespace nsa::train
