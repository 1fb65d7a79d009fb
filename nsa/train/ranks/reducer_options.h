#pragma once
#include <cstdint>
#include <string>

namespace nsa::train {

/// How gradients are averaged over the ranks (switches NSA_DDP_*).
struct ReducerOptions {
  int64_t bucket_mib = 25;  ///< a bucket is closed when it has reached this size
  bool bf16 = false;        ///< gradients travel as bf16
  /// Who sums them: allreduce (of NCCL or Gloo) | peers (peer_sums.h) | auto (peers where they
  /// can).
  std::string sums = "auto";
};

/// Who sums the gradients of a run, and why not by peers where they were asked for if possible.
struct SumsUse {
  std::string ran;  ///< allreduce | peers
  std::string reason;
};

}  // namespace nsa::train
