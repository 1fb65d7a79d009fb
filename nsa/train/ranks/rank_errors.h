#pragma once
#include <functional>
#include <string>
#include <vector>

#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// The texts that `f` returns on every rank, in their order. Where it throws InputError on one, all
/// throw one that names the first such rank. Collective.
std::vector<std::string> gather_or_throw(RankGroup& ranks, const std::function<std::string()>& f);

}  // namespace nsa::train
