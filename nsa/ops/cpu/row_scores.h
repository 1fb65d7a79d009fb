#pragma once
#include <cstdint>
#include <vector>

#include "nsa/config/config.h"
#include "nsa/ops/cpu/inner_loops/kernel_table.h"

namespace nsa::cpu {

/// Scores of the selection blocks of one row (paper, Eqs. 9 and 10). Keeps buffers.
class RowScores {
 public:
  /// For rows at positions up to `last` that see up to `num_blocks` compressed blocks.
  RowScores(const NsaConfig& config, int64_t last, int64_t num_blocks);

  /// weights [group, row] of the softmax over `blocks` compressed blocks, 0 behind them; inverse
  /// [group] 1 / their sums -> scores [t / l' + 1]. Equal patterns have equal scores, as the sums
  /// of every block have the same order.
  const float* find(const float* weights, int64_t row, const std::vector<float>& inverse,
                    int64_t blocks, int64_t t);

 private:
  int64_t reach() const { return config_.block_size / config_.block_stride; }
  /// Strides of all selection blocks up to t, and of all visible compressed blocks.
  int64_t width_at(int64_t t, int64_t blocks) const;

  NsaConfig config_;
  std::vector<float> probs_, strides_, scores_;
};

}  // namespace nsa::cpu
