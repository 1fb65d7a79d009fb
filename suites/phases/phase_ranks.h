#pragma once
#include <memory>

#include "nsa/train/ranks/rank_group.h"
#include "suites/phases/phase.h"

namespace suites {

/// The processes that take the steps of a case together, as `args.ranks` asks. All of them take the
/// same steps; rank 0 says what is to be said.
struct PhaseRanks {
  nsa::train::RankPlace place;
  std::unique_ptr<nsa::train::RankGroup> group;  ///< null: one process

  bool reports() const { return place.rank == 0; }
  /// The mean over the ranks: where something is decided from a time, all decide alike.
  double mean(double value) const;
};

/// The case for a rank that shall not be heard: what it says goes nowhere.
class UnheardCase {
 public:
  explicit UnheardCase(const PhaseCase& one)
      : one_{one.in, one.id, one.args, one.device, nobody_, one.options} {}
  const PhaseCase& one() const { return one_; }

 private:
  base::protocol::Emitter nobody_{"/dev/null"};
  PhaseCase one_;
};

/// Meets the other ranks, `fewest` or more of them. `args.rank_timeout_s` (120): ranks that wait
/// for one another this long have lost it. Throws ConfigError and InputError.
PhaseRanks open_ranks(const PhaseCase& one, int64_t fewest);

}  // namespace suites
