// Chooses the instantiation of interval attention for a problem.
#include "nsa/kernels/interval/interval_attention.h"

#include <algorithm>

#include "nsa/kernels/common/alignment.h"
#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/interval/sm80/interval_attention_launch.h"
#include "nsa/kernels/interval/sm90/interval_attention_launch.h"

namespace nsa::kernels {
namespace {

using sm90::Launch, sm90::LaunchOfTiles;

struct IntervalInstance {
  int qk_head_dim, v_head_dim;
  Element element;
  LaunchOfTiles wide;  // key tiles of 128
  Launch narrow;       // of 112
  Launch select;       // with block selection
  sm80::IntervalLaunch sm80;
};

constexpr IntervalInstance kIntervalInstances[] = {
    {64, 64, Element::kBFloat16, sm90::interval_64_64_128_bf16, sm90::interval_64_64_112_bf16,
     sm90::select_64_64_bf16, sm80::interval_64_64_bf16},
    {64, 64, Element::kHalf, sm90::interval_64_64_128_fp16, sm90::interval_64_64_112_fp16,
     sm90::select_64_64_fp16, sm80::interval_64_64_fp16},
    {128, 128, Element::kBFloat16, sm90::interval_128_128_128_bf16, sm90::interval_128_128_112_bf16,
     sm90::select_128_128_bf16, sm80::interval_128_128_bf16},
    {128, 128, Element::kHalf, sm90::interval_128_128_128_fp16, sm90::interval_128_128_112_fp16,
     sm90::select_128_128_fp16, sm80::interval_128_128_fp16},
    {192, 128, Element::kBFloat16, sm90::interval_192_128_128_bf16, sm90::interval_192_128_112_bf16,
     sm90::select_192_128_bf16, sm80::interval_192_128_bf16},
    {192, 128, Element::kHalf, sm90::interval_192_128_128_fp16, sm90::interval_192_128_112_fp16,
     sm90::select_192_128_fp16, sm80::interval_192_128_fp16},
    {256, 256, Element::kBFloat16, nullptr, nullptr, nullptr, sm80::interval_256_256_bf16},
    {256, 256, Element::kHalf, nullptr, nullptr, nullptr, sm80::interval_256_256_fp16},
};

static_assert(covers_head_dims(kIntervalInstances, 2));

const IntervalInstance* find_instance(const IntervalAttention& p) {
  for (const IntervalInstance& one : kIntervalInstances)
    if (one.qk_head_dim == p.qk_head_dim && one.v_head_dim == p.v_head_dim &&
        one.element == p.element)
      return &one;
  return nullptr;
}

/// Keys a CTA multiplies, masked ones included, with tiles of `width`.
int64_t padded_keys(const IntervalAttention& p, int width) {
  const int group = p.num_heads / p.num_kv_heads,
            tokens = 64 * sm90::warpgroups_of(p.qk_head_dim) / group;
  const int64_t span = std::min<int64_t>(int64_t{p.rule.window} + tokens - 1, p.num_keys);
  return (span + width - 1) / width * width;
}

const char* unsupported_choice(const IntervalAttention& p) {
  const BlockSelection& s = p.selection;
  if (p.rule.window != IntervalRule::kEverything)
    return "blocks are chosen by the compressed branch only";
  const SelectionSizes sizes{p.num_heads / p.num_kv_heads, p.rule.extent, p.rule.stride,
                             s.sel_block_size, s.top_n};
  if (p.code == Code::kSm90 && sizes.needs_sm80())
    return "selection of more than 32 blocks, with l/d above 4 or more than 16 query heads a KV "
           "head "
           "has code of sm_80 only";
  return unsupported_selection(sizes);
}

bool allows_tiles(const IntervalAttention& p) {
  return p.code == Code::kSm90 && p.selection.block_idx == nullptr && p.rule.stride == 1 &&
         p.rule.extent == 1 && p.rule.window == IntervalRule::kEverything &&
         p.first_position + p.num_queries <= TileRanges::kPositions;
}

}  // namespace

const char* unsupported_reason(const IntervalAttention& p) {
  const char* reason =
      unsupported_interval({p.num_heads, p.num_kv_heads, p.qk_head_dim, p.v_head_dim});
  if (reason != nullptr) return reason;
  if (p.code == Code::kSm90 && !have_wgmma_kernels(p.qk_head_dim, p.v_head_dim))
    return kSm80HeadDims;
  if (!aligned(p.q) || !aligned(p.k) || !aligned(p.v))
    return "an address or stride is no multiple of 16 bytes";
  if (p.batch > 65535 || p.num_kv_heads > 65535) return "more than 65535 sequences or KV heads";
  return p.selection.block_idx == nullptr ? nullptr : unsupported_choice(p);
}

cudaError_t interval_attention_forward(const IntervalAttention& p, cudaStream_t stream) {
  if (unsupported_reason(p) != nullptr) return cudaErrorInvalidValue;
  if (p.documents != nullptr && (p.batch != 1 || p.first_position != 0))
    return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_queries == 0) return cudaSuccess;
  const IntervalInstance& one = *find_instance(p);
  if (p.code == Code::kSm80) return one.sm80(p, stream);
  if (p.selection.block_idx != nullptr) return one.select(p, stream);
  // A narrower tile wastes less of a window's ragged end; a wider one has fewer steps.
  const bool narrow = padded_keys(p, 112) * 100 < padded_keys(p, 128) * 97;
  return narrow ? one.narrow(p, stream) : one.wide(p, {}, stream);
}

cudaError_t tile_attention_forward(const IntervalAttention& p, const TileRanges& tiles,
                                   cudaStream_t stream) {
  if (unsupported_reason(p) != nullptr || !allows_tiles(p)) return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_queries == 0) return cudaSuccess;
  return find_instance(p)->wide(p, tiles, stream);
}

}  // namespace nsa::kernels
