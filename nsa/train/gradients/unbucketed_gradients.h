#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// Small gradients, which travel outside of buckets. No product makes them in a bucket, so each
/// would cost a copy of its own; and one of three floats would push all behind it off the
/// boundaries at which norms and the optimizer read whole vectors (m7c_125m, 2k B 16, two H200s:
/// the step took 2.4 ms more than one without sums, where it took 3.1 with every gradient in a
/// bucket and a division before the sum).
class UnbucketedGradients {
 public:
  /// Takes those of `parameters` of at most 16 KiB, unless all are so.
  explicit UnbucketedGradients(const std::vector<at::Tensor>& parameters);

  /// The parameters that were not taken, in their order.
  const std::vector<at::Tensor>& others() const { return others_; }

  /// Behind the backward pass: the mean over the ranks in the place of every gradient, in one sum,
  /// in its own type also where buckets travel as bf16. Throws c10::Error where one has no
  /// gradient.
  void average(RankGroup& group, CollectiveLog& log) const;

 private:
  std::vector<at::Tensor> taken_, others_;
};

}  // namespace nsa::train
