#include "suites/phases/phase_ranks.h"

#include <ATen/ATen.h>

#include <chrono>

namespace suites {

namespace train = nsa::train;

double PhaseRanks::mean(double value) const {
  if (!group) return value;
  const at::Tensor sum = at::full({1}, value, at::device(group->device()).dtype(at::kDouble));
  group->sum(sum);
  return sum.item<double>() / static_cast<double>(place.world);
}

PhaseRanks open_ranks(const PhaseCase& one, int64_t fewest) {
  const int64_t asked = one.args.get_int("ranks", fewest, fewest);
  const double timeout_s = one.args.get_number("rank_timeout_s", 120, 1);
  PhaseRanks ranks;
  if (asked <= 1) return ranks;
  ranks.place = train::read_rank_place(train::environment_variable);
  train::require_ranks(ranks.place, asked);
  ranks.group = std::make_unique<train::RankGroup>(
      ranks.place, one.device, std::chrono::milliseconds(static_cast<int64_t>(1000 * timeout_s)));
  return ranks;
}

}  // namespace suites
