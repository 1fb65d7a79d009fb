// Chooses the instantiation and enqueues the steps of the selected branch's backward pass.
#include "nsa/kernels/selected/selected_backward.h"

#include <algorithm>

#include "nsa/kernels/common/alignment.h"
#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/selected/selected_sums.h"
#include "nsa/kernels/selected/sm80/selected_backward_launch.h"
#include "nsa/kernels/selected/sm90/selected_backward_launch.h"
#include "nsa/kernels/selected/sm90/selected_early_launch.h"
#include "nsa/kernels/selected/tile_index.h"

namespace nsa::kernels {
namespace {

struct SelectedInstance {
  int qk_head_dim, v_head_dim;
  Element element;
  sm90::SelectedBackwardLaunch launch;
  sm90::LaunchEarly early;
  sm80::SelectedBackwardLaunch sm80_launch;
};

constexpr SelectedInstance kSelectedInstances[] = {
    {64, 64, Element::kBFloat16, sm90::selected_backward_64_64_bf16,
     sm90::selected_early_64_64_bf16, sm80::selected_backward_64_64_bf16},
    {64, 64, Element::kHalf, sm90::selected_backward_64_64_fp16, sm90::selected_early_64_64_fp16,
     sm80::selected_backward_64_64_fp16},
    {128, 128, Element::kBFloat16, sm90::selected_backward_128_128_bf16,
     sm90::selected_early_128_128_bf16, sm80::selected_backward_128_128_bf16},
    {128, 128, Element::kHalf, sm90::selected_backward_128_128_fp16,
     sm90::selected_early_128_128_fp16, sm80::selected_backward_128_128_fp16},
    {192, 128, Element::kBFloat16, sm90::selected_backward_192_128_bf16,
     sm90::selected_early_192_128_bf16, sm80::selected_backward_192_128_bf16},
    {192, 128, Element::kHalf, sm90::selected_backward_192_128_fp16,
     sm90::selected_early_192_128_fp16, sm80::selected_backward_192_128_fp16},
    {256, 256, Element::kBFloat16, nullptr, nullptr, sm80::selected_backward_256_256_bf16},
    {256, 256, Element::kHalf, nullptr, nullptr, sm80::selected_backward_256_256_fp16},
};

static_assert(covers_head_dims(kSelectedInstances, 2));

const SelectedInstance* find_instance(const SelectedBackward& p) {
  for (const SelectedInstance& one : kSelectedInstances)
    if (one.qk_head_dim == p.qk_head_dim && one.v_head_dim == p.v_head_dim &&
        one.element == p.element)
      return &one;
  return nullptr;
}

SelectedSizes backward_sizes(const SelectedBackward& p) {
  SelectedSizes sizes = selected_sizes(p, p.max_tiles_of_row, SelectedPass::kBackward);
  sizes.window = p.window.size;
  return sizes;
}

/// The problem without its dense queries; stats and d_q keep the strides of all.
SelectedBackward later_queries(SelectedBackward p) {
  p.num_queries -= p.dense;
  p.first_position += p.dense;
  p.q.data = static_cast<const char*>(p.q.data) + p.dense * p.q.token * 2;
  p.d_out.data = static_cast<const char*>(p.d_out.data) + p.dense * p.d_out.token * 2;
  p.ranges += int64_t{p.dense} * p.num_kv_heads * p.num_ranges * 2;
  p.stats += int64_t{p.dense} * p.num_heads * 2;
  const int64_t row = int64_t{p.num_heads} * p.qk_head_dim;
  p.d_q = static_cast<char*>(p.d_q) + p.dense * row * 2;
  JoinedQueries& joined = p.joined;
  if (joined.out == nullptr) return p;
  for (const void*& term : joined.terms)
    if (term != nullptr) term = static_cast<const char*>(term) + p.dense * row * 2;
  joined.out = static_cast<char*>(joined.out) + p.dense * joined.out_stride * 2;
  if (joined.cos_sin != nullptr) joined.cos_sin += int64_t{p.dense} * (p.qk_head_dim / 2);
  return p;
}

/// What lies in the workspace before the arrays of the later queries' plan.
struct Layout {
  size_t bad = 0, nothing = 16;
  size_t stats, words, of_window, of_both, slots, later;
};

/// The dense queries in whole tiles, without addresses in a workspace.
sm90::SelectedEarly early_queries(const SelectedBackward& p) {
  sm90::SelectedEarly early;
  if (p.dense == 0) return early;
  IntervalAttention& f = early.problem.forward;
  f.q = p.q, f.k = p.k, f.v = p.v;
  f.batch = p.batch, f.num_queries = p.dense;
  f.num_keys = std::min(p.num_keys, p.first_position + p.dense);
  f.num_heads = p.num_heads, f.num_kv_heads = p.num_kv_heads;
  f.qk_head_dim = p.qk_head_dim, f.v_head_dim = p.v_head_dim;
  f.first_position = p.first_position, f.scale = p.scale, f.element = p.element;
  early.problem.d_out = p.d_out, early.problem.d_q = p.d_q;
  early.words.key_tiles = (f.num_keys + sm90::kKeysOfTile - 1) / sm90::kKeysOfTile * 2;
  early.words.tokens_of_batch = p.num_queries;
  early.words.window = p.window.size;
  early.words.window_lse = p.window.rows.lse, early.words.window_delta = p.window.rows.delta;
  sm90::choose_chunks(f, early.plan);
  return early;
}

Layout layout_of(const SelectedBackward& p, const sm90::SelectedEarly& early) {
  Layout at{};
  size_t end = 256;
  const auto place = [&](size_t& offset, size_t bytes) {
    offset = end;
    end += (bytes + 255) / 256 * 256;
  };
  const size_t heads = size_t(p.batch) * p.num_kv_heads;
  place(at.stats, p.stats == nullptr ? size_t(p.batch) * p.num_queries * p.num_heads * 8 : 0);
  place(at.words, heads * p.dense * 8);
  // Rows count as in stats; none is asked for behind the last sequence's dense queries.
  const size_t tokens = size_t(p.batch - 1) * p.num_queries + p.dense;
  const size_t joined = p.window.size == 0 ? 0 : tokens * p.num_heads * sizeof(float2);
  place(at.of_window, joined);
  place(at.of_both, joined);
  place(at.slots, early.plan.num_chunks * heads * early.words.key_tiles * kKeysOfTile *
                      (p.qk_head_dim + p.v_head_dim) * sizeof(float));
  at.later = end;
  return at;
}

cudaError_t backward_by_keys(const SelectedBackward& p, int tokens_of_batch,
                             const sm90::SelectedEarly& early, void* workspace,
                             cudaStream_t stream) {
  const SelectedPlan plan = plan_selected(backward_sizes(p));
  const SelectedInstance& instance = *find_instance(p);
  const auto launch = p.code == Code::kSm80 ? instance.sm80_launch : instance.launch;
  cudaError_t status = portable::build_tile_index(portable::token_ranges(p, tokens_of_batch), plan,
                                                  workspace, stream);
  for (int set = 0; status == cudaSuccess && set < plan.sets(); ++set) {
    status = launch(p, tokens_of_batch, plan, workspace, set, stream);
    if (status == cudaSuccess)
      status = portable::sum_set(p, tokens_of_batch, early, plan, workspace, set, stream);
  }
  return status;
}

cudaError_t backward_of_early(const SelectedBackward& p, const sm90::SelectedEarly& early,
                              cudaStream_t stream) {
  cudaError_t status = sm90::read_tile_words(early, p.ranges, p.num_ranges, stream);
  if (status == cudaSuccess) status = find_instance(p)->early(early, stream);
  return status == cudaSuccess ? sm90::mend_early(early, stream) : status;
}

}  // namespace

const char* unsupported_reason(const SelectedBackward& p) {
  const char* reason = unsupported_selected_backward(
      {p.num_heads, p.num_kv_heads, p.qk_head_dim, p.v_head_dim}, p.num_ranges);
  if (reason != nullptr) return reason;
  if (p.code == Code::kSm90 && !have_wgmma_kernels(p.qk_head_dim, p.v_head_dim))
    return kSm80HeadDims;
  if (!aligned(p.q) || !aligned(p.k) || !aligned(p.v) || !aligned(p.d_out))
    return "an address or stride is no multiple of 16 bytes";
  if (!rows_within_reach(p.q, p.num_queries, p.num_heads) ||
      !rows_within_reach(p.d_out, p.num_queries, p.num_heads))
    return "rows of q or d_out more than 32 GiB apart";
  const JoinedQueries& joined = p.joined;
  if (joined.out != nullptr && (joined.out_stride % 8 != 0 || !aligned(joined.out) ||
                                !aligned(joined.terms[0]) || !aligned(joined.terms[1])))
    return "an address or stride of what joins d_q is no multiple of 16 bytes";
  const SelectedSizes sizes = backward_sizes(p);
  if (p.dense < 0 || p.dense > most_dense_queries(sizes, p.first_position, p.block_size))
    return "more dense queries than have whole tiles";
  if (p.code == Code::kSm80 && p.dense > 0) return "whole tiles have no kernel of sm_80";
  if (p.window.size != 0 && (p.window.size < JoinedWindow::kLeast || p.dense == 0))
    return "a window joins queries in whole tiles only, and from 256 tokens on";
  return unsupported_index(sizes);
}

int dense_queries(const SelectedBackward& p) {
  if (p.code == Code::kSm80) return 0;
  return dense_queries(backward_sizes(p), p.first_position, p.block_size);
}

size_t workspace_bytes(const SelectedBackward& p) {
  if (p.batch == 0 || p.num_queries == 0) return 0;
  SelectedSizes later = backward_sizes(p);
  later.num_queries -= p.dense;
  return layout_of(p, early_queries(p)).later +
         (later.num_queries == 0 ? 0 : plan_selected(later).bytes);
}

cudaError_t selected_attention_backward(const SelectedBackward& given, void* workspace,
                                        cudaStream_t stream) {
  if (unsupported_reason(given) != nullptr) return cudaErrorInvalidValue;
  if (given.batch == 0 || given.num_queries == 0) return cudaSuccess;
  sm90::SelectedEarly early = early_queries(given);
  const Layout layout = layout_of(given, early);
  const auto at = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  SelectedBackward p = given;
  cudaError_t status = cudaSuccess;
  if (p.stats == nullptr) {
    float* const stats = reinterpret_cast<float*>(at(layout.stats));
    status = portable::row_stats(p, stats, stream);
    p.stats = stats;
  }
  if (status == cudaSuccess && p.dense > 0) {
    early.plan.bad = reinterpret_cast<int*>(at(layout.bad));
    early.words.nothing = reinterpret_cast<float2*>(at(layout.nothing));
    early.words.words = reinterpret_cast<uint64_t*>(at(layout.words));
    early.words.slots = reinterpret_cast<float*>(at(layout.slots));
    early.words.stats = reinterpret_cast<const float2*>(p.stats);
    early.words.of_window = reinterpret_cast<float2*>(at(layout.of_window));
    early.words.of_both = reinterpret_cast<float2*>(at(layout.of_both));
    status = backward_of_early(p, early, stream);
  }
  if (status != cudaSuccess) return status;
  return p.dense == p.num_queries
             ? portable::sum_early_slots(p, early, stream)
             : backward_by_keys(later_queries(p), p.num_queries, early, at(layout.later), stream);
}

}  // namespace nsa::kernels
