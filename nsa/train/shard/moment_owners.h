#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/train/loop/adamw.h"
#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// Whole parameters on every rank, the moments of each on one (ZeRO-1, arXiv:1910.02054): that rank
/// updates it and sends it to the others.
class MomentOwners {
 public:
  /// Parameters to ranks, the largest first, each to the rank that has the least so far. `ranks`
  /// and `log` outlive it.
  MomentOwners(std::vector<at::Tensor> parameters, RankGroup& ranks, CollectiveLog& log);

  /// Whether this rank has the moments of each parameter.
  std::vector<bool> owned() const;
  /// Every owner's updated parameters to all. Collective.
  void share_parameters() const;
  /// Moments of parameter `i` on every rank, from `here`, undefined where it is not owned.
  /// Collective.
  AdamW::Moments whole_moments(size_t i, AdamW::Moments here) const;

 private:
  std::vector<at::Tensor> parameters_;
  RankGroup& ranks_;
  CollectiveLog& log_;
  std::vector<int64_t> owner_;  ///< rank of each parameter
};

}  // namespace nsa::train
