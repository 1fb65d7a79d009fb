// Chooses the instantiation of row attention for a problem.
#include "nsa/kernels/selected/rows/row_attention.h"

#include "nsa/kernels/common/alignment.h"
#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/selected/rows/row_attention_launch.h"

namespace nsa::kernels {
namespace {

struct RowInstance {
  int qk_head_dim, v_head_dim;
  Element element;
  portable::RowLaunch launch;
};

constexpr RowInstance kRowInstances[] = {
    {64, 64, Element::kBFloat16, portable::row_64_64_bf16},
    {64, 64, Element::kHalf, portable::row_64_64_fp16},
    {128, 128, Element::kBFloat16, portable::row_128_128_bf16},
    {128, 128, Element::kHalf, portable::row_128_128_fp16},
    {192, 128, Element::kBFloat16, portable::row_192_128_bf16},
    {192, 128, Element::kHalf, portable::row_192_128_fp16},
    {256, 256, Element::kBFloat16, portable::row_256_256_bf16},
    {256, 256, Element::kHalf, portable::row_256_256_fp16},
};

static_assert(covers_head_dims(kRowInstances, 2));

const RowInstance* find_instance(const RowAttention& p) {
  for (const RowInstance& one : kRowInstances)
    if (one.qk_head_dim == p.qk_head_dim && one.v_head_dim == p.v_head_dim &&
        one.element == p.element)
      return &one;
  return nullptr;
}

constexpr int64_t kManyRows = 4096;  // measured: from here on a warp a row is faster

bool may_have_one_warp(const RowAttention& p) {
  return p.num_ranges <= portable::kMostRangesOfWarp &&
         p.v_head_dim <= portable::kMostColumnsOfWarp;
}

/// One where rows fill the card without more: a row's warps wait for each other at its end, and
/// each begins with the whole list of its runs.
int warps_of(const RowAttention& p) {
  const int64_t rows = int64_t{p.batch} * p.num_queries * p.num_kv_heads;
  return may_have_one_warp(p) && rows >= kManyRows ? 1 : 4;
}

}  // namespace

const char* unsupported_reason(const RowAttention& p) {
  const char* reason =
      unsupported_rows({p.num_heads, p.num_kv_heads, p.qk_head_dim, p.v_head_dim}, p.num_ranges);
  if (reason != nullptr) return reason;
  if (!aligned(p.q) || !aligned(p.k) || !aligned(p.v))
    return "an address or stride is no multiple of 16 bytes";
  if (p.batch > 65535 || p.num_kv_heads > 65535) return "more than 65535 sequences or KV heads";
  return nullptr;
}

cudaError_t row_attention_forward(const RowAttention& p, cudaStream_t stream, int warps_of_row) {
  if (unsupported_reason(p) != nullptr) return cudaErrorInvalidValue;
  if (warps_of_row == 0) warps_of_row = warps_of(p);
  if (warps_of_row != 4 && (warps_of_row != 1 || !may_have_one_warp(p)))
    return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_queries == 0) return cudaSuccess;
  return find_instance(p)->launch(p, warps_of_row, stream);
}

}  // namespace nsa::kernels
