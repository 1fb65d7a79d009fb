#include "nsa/decode/attended_keys.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nsa {
namespace {

constexpr int64_t kQueries = 256;  // a chunk

}  // namespace

at::Tensor attended_keys(const NsaOutputs& outputs, const NsaConfig& config) {
  const at::Tensor& ranges = outputs.ranges;  // [B, S, Hkv, K, 2]
  const int64_t num_tokens = ranges.size(1), num_blocks = config.num_compressed(num_tokens);
  const KeyMask masks[] = {{KeyMask::kVisibleBlocks, 0, config.block_size, config.block_stride, {}},
                           {KeyMask::kRanges, 0, 0, 1, ranges},
                           {KeyMask::kWindow, 0, config.window, 1, {}}};
  at::Tensor counts =
      at::zeros({ranges.size(0), num_tokens, ranges.size(2), 3}, ranges.options().dtype(at::kLong));
  for (int64_t branch = 0; branch < 3; ++branch) {
    for (int64_t begin = 0; begin < num_tokens; begin += kQueries) {
      const int64_t count = std::min(kQueries, num_tokens - begin);
      const KeyMask& mask = masks[branch];
      const KeyMask::Span span = mask.span(begin, count, branch == 0 ? num_blocks : num_tokens);
      const at::Tensor allowed = mask.allowed(begin, count, span, ranges.device()).sum(-1);
      at::Tensor rows = counts.narrow(1, begin, count).select(3, branch);
      rows.copy_(allowed.dim() == 4 ? allowed.squeeze(2).transpose(1, 2) : allowed.unsqueeze(-1));
    }
  }
  return counts;
}

}  // namespace nsa
