#pragma once
#include <cstdint>

namespace nsa::train {

/// How gradients are averaged over the ranks (switches NSA_DDP_*).
struct ReducerOptions {
  int64_t bucket_mib = 25;  ///< a bucket is closed when it has reached this size
  bool bf16 = false;        ///< gradients travel as bf16
};

}  // namespace nsa::train
