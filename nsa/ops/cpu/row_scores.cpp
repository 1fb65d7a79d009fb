#include "nsa/ops/cpu/row_scores.h"

#include <algorithm>

#include "nsa/ops/cpu/tiles/head_rows.h"

namespace nsa::cpu {
namespace {

constexpr size_t kLongestVector = 16;  ///< what vectors may write behind an end

}  // namespace

RowScores::RowScores(const NsaConfig& config, int64_t last, int64_t num_blocks) : config_(config) {
  const auto strides = static_cast<size_t>(width_at(last, num_blocks));
  probs_.resize(strides + static_cast<size_t>(reach()) + kLongestVector);
  strides_.resize(strides + kLongestVector);
  scores_.resize(static_cast<size_t>(last / config.sel_block_size + 1));
}

int64_t RowScores::width_at(int64_t t, int64_t blocks) const {
  const int64_t per_block = config_.sel_block_size / config_.block_stride;
  return round_up(std::max((t / config_.sel_block_size + 1) * per_block, blocks + reach() - 1),
                  kRowMultiple);
}

const float* RowScores::find(const float* weights, int64_t row, const std::vector<float>& inverse,
                             int64_t blocks, int64_t t) {
  kernel_table().stride_scores({weights, row, static_cast<int64_t>(inverse.size()), inverse.data(),
                                blocks, reach(), probs_.data(), strides_.data(),
                                width_at(t, blocks)});
  const int64_t per_block = config_.sel_block_size / config_.block_stride;
  const float* stride = strides_.data();
  for (int64_t j = 0; j <= t / config_.sel_block_size; ++j) {
    float sum = *stride++;
    for (int64_t i = 1; i < per_block; ++i) sum += *stride++;
    scores_[static_cast<size_t>(j)] = sum;
  }
  return scores_.data();
}

}  // namespace nsa::cpu
