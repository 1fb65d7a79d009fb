#pragma once
#include <memory>

#include "nsa/train/ranks/rank_group.h"
#include "suites/phases/phase.h"

namespace suites {

/// The processes that take the steps of a case together, as `args.ranks` asks. All of them take the
/// same steps; rank 0 reports for all.
struct PhaseRanks {
  nsa::train::RankPlace place;
  std::unique_ptr<nsa::train::RankGroup> group;  ///< null: one process

  bool reports() const { return place.rank == 0; }
  /// The mean over the ranks, so that all make the same decision from a time.
  double mean(double value) const;
};

/// A copy of a case for a rank that does not report: its lines are discarded.
class UnreportedCase {
 public:
  explicit UnreportedCase(const PhaseCase& one)
      : one_{one.in, one.id, one.args, one.device, discard_, one.options} {}
  const PhaseCase& one() const { return one_; }

 private:
  base::protocol::Emitter discard_{"/dev/null"};
  PhaseCase one_;
};

/// Joins the group of ranks, which must be `fewest` or more. `args.rank_timeout_s` (120): how long
/// ranks wait for one another. Throws ConfigError and InputError.
PhaseRanks open_ranks(const PhaseCase& one, int64_t fewest);

}  // namespace suites
