#pragma once
#include <map>
#include <string>
#include <vector>

namespace nsa::train {

/// What ranks must have in common to train one model: values by the names of options and switches.
using RankSettings = std::map<std::string, std::string>;

/// Begins the reason of a run whose ranks were not started alike.
inline constexpr const char* kUnlikeRanks = "RANK_FAULT: the ranks were not started alike: ";

/// Compares every rank with rank 0. Empty where all agree; else kUnlikeRanks, each rank and option
/// that differ with both values (the first few of them), and the remedy.
std::string describe_disagreement(const std::vector<RankSettings>& of_ranks);

/// Settings as text that travels between ranks, and back.
std::string to_text(const RankSettings& settings);
RankSettings settings_of_text(const std::string& text);

}  // namespace nsa::train
