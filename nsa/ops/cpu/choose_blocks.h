#pragma once
#include <cstdint>
#include <vector>

#include "nsa/config/config.h"

namespace nsa::cpu {

/// The selection of one row (paper, Eqs. 11 and 12) by the rule of select_blocks. Keeps buffers.
class BlockChoice {
 public:
  explicit BlockChoice(const NsaConfig& config) : config_(config) {}

  /// scores [current + 1] >= 0 or NaN -> ids [n], ascending, unused places -1.
  void choose(const float* scores, int64_t current, int32_t* ids);

 private:
  struct Candidate {
    float score;
    int32_t id;
  };
  void keep_best(const float* scores, int64_t begin, int64_t end, size_t places);

  NsaConfig config_;
  std::vector<Candidate> best_;  ///< by score descending, equal scores by id ascending
};

}  // namespace nsa::cpu
