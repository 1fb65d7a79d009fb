// Chooses the instantiation of the backward pass and how its work is cut into units.
#include "nsa/device/interval_backward.h"

#include <algorithm>

#include "nsa/device/alignment.h"
#include "nsa/device/sm90/interval_backward_launch.h"
#include "nsa/device/sm90/interval_bounds.h"

namespace nsa::device {
namespace {

using sm90::BackwardPlan;
using sm90::Span;

struct BackwardInstance {
  int qk_head_dim, v_head_dim;
  sm90::LaunchBackward bf16, fp16;
};
constexpr BackwardInstance kBackwardInstances[] = {
    {64, 64, sm90::backward_64_64_bf16, sm90::backward_64_64_fp16},
    {128, 128, sm90::backward_128_128_bf16, sm90::backward_128_128_fp16},
    {192, 128, sm90::backward_192_128_bf16, sm90::backward_192_128_fp16},
};

const BackwardInstance* find_instance(const IntervalAttention& f) {
  for (const BackwardInstance& one : kBackwardInstances)
    if (one.qk_head_dim == f.qk_head_dim && one.v_head_dim == f.v_head_dim) return &one;
  return nullptr;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// How the tokens of every key tile are cut into chunks: units, and how long they take.
struct Cut {
  int64_t units = 0, chunks = 1;  // of all heads; of the longest tile
  double tokens = 0;              // time of the whole launch, in tokens of one unit
};

Cut cut(const IntervalAttention& f, int64_t chunk_tokens, int64_t tokens_of_tile) {
  constexpr int64_t kStart =
      8;  // starting and ending a unit takes as long as so many tiles of rows
  Cut result;
  int64_t total = 0, longest = 0;
  for (int first = 0; first < f.num_keys; first += sm90::kKeysOfTile) {
    const Span span = sm90::queries_of(f, first, std::min(first + sm90::kKeysOfTile, f.num_keys));
    const int64_t run = std::max(0, span.end - span.begin), chunks = ceil_div(run, chunk_tokens);
    result.units += chunks;
    result.chunks = std::max(result.chunks, chunks);
    longest = std::max(longest, std::min(run, chunk_tokens));
    total += run + chunks * kStart * tokens_of_tile;
  }
  if (result.units == 0) return result;
  longest += kStart * tokens_of_tile;
  const double mean = double(total) / double(result.units);
  result.units *= int64_t{f.batch} * f.num_kv_heads;
  const int64_t waves = ceil_div(result.units, sm90::kBusySms);
  // Equal units run in waves; of unequal ones the longest may be among the last.
  result.tokens = double(waves) * mean + (double(longest) - mean) * (waves > 1 ? 1.0 : 0.0);
  result.tokens = std::max(result.tokens, double(longest));
  return result;
}

int64_t partial_bytes(const IntervalAttention& f, int64_t chunks) {
  return chunks * f.batch * f.num_kv_heads * f.num_keys * (f.qk_head_dim + f.v_head_dim) *
         int64_t{sizeof(float)};
}

/// One chunk a key tile unless more keep the SMs clearly busier.
void choose_chunks(const IntervalAttention& f, BackwardPlan& plan) {
  const auto tiling =
      sm90::row_tiling(f.num_heads / f.num_kv_heads, sm90::rows_of_key_pass(f.qk_head_dim));
  const int64_t tile = tiling.tokens, most = ceil_div(std::max(f.num_queries, 1), tile) * tile;
  plan.chunk_tokens = static_cast<int>(most);
  plan.num_chunks = 1;
  Cut best = cut(f, most, tile);
  best.tokens *= 0.92;  // what partial sums must save at least
  constexpr int kSteps = 40;
  for (int step = 1; step < kSteps; ++step) {
    const int64_t tokens = ceil_div(most * (kSteps - step), kSteps * tile) * tile;
    const Cut one = cut(f, tokens, tile);
    if (partial_bytes(f, one.chunks) > int64_t{kMaxPartialBytes}) break;
    if (one.tokens >= best.tokens) continue;
    best = one;
    plan.chunk_tokens = static_cast<int>(tokens);
    plan.num_chunks = static_cast<int>(one.chunks);
  }
}

/// The plan, and the bytes of its workspace; pointers only where there is a workspace.
size_t make_plan(const IntervalBackward& p, BackwardPlan& plan) {
  const IntervalAttention& f = p.forward;
  choose_chunks(f, plan);
  const int64_t rows = ceil_div(int64_t{f.batch} * f.num_queries * f.num_heads, 4) * 4;
  const size_t flags = 16, floats = static_cast<size_t>(rows) * sizeof(float);
  const size_t partials =
      plan.num_chunks > 1 ? static_cast<size_t>(partial_bytes(f, plan.num_chunks)) : 0;
  if (p.workspace != nullptr) {
    char* at = static_cast<char*>(p.workspace);
    plan.bad = reinterpret_cast<int*>(at);
    plan.lse = reinterpret_cast<float*>(at + flags);
    plan.delta = reinterpret_cast<float*>(at + flags + floats);
    plan.partials = reinterpret_cast<float*>(at + flags + 2 * floats);
  }
  return flags + 2 * floats + partials;
}

cudaError_t clear(void* data, int64_t elements, cudaStream_t stream) {
  return elements == 0 ? cudaSuccess
                       : cudaMemsetAsync(data, 0, static_cast<size_t>(elements) * 2, stream);
}

}  // namespace

const char* unsupported_reason(const IntervalBackward& p) {
  IntervalAttention forward = p.forward;
  forward.selection = {};
  const char* reason = unsupported_reason(forward);
  if (reason != nullptr) return reason;
  if (find_instance(forward) == nullptr) return "no backward kernel for these head dims";
  if (!aligned(p.d_out)) return "an address or stride of d_out is no multiple of 16 bytes";
  return nullptr;
}

size_t workspace_bytes(const IntervalBackward& p) {
  IntervalBackward sizes = p;
  sizes.workspace = nullptr;
  BackwardPlan plan;
  return make_plan(sizes, plan);
}

cudaError_t interval_attention_backward(const IntervalBackward& p, cudaStream_t stream) {
  if (unsupported_reason(p) != nullptr) return cudaErrorInvalidValue;
  const IntervalAttention& f = p.forward;
  if (f.batch == 0) return cudaSuccess;
  if (f.num_queries == 0 || f.num_keys == 0) {
    const int64_t rows = int64_t{f.batch} * f.num_queries * f.num_heads,
                  keys = int64_t{f.batch} * f.num_keys * f.num_kv_heads;
    cudaError_t status = clear(p.d_q, rows * f.qk_head_dim, stream);
    if (status == cudaSuccess) status = clear(p.d_k, keys * f.qk_head_dim, stream);
    return status == cudaSuccess ? clear(p.d_v, keys * f.v_head_dim, stream) : status;
  }
  if (p.workspace == nullptr) return cudaErrorInvalidValue;
  BackwardPlan plan;
  make_plan(p, plan);
  const BackwardInstance& one = *find_instance(f);
  cudaError_t status = sm90::prepare_rows(p, plan, stream);
  if (status == cudaSuccess)
    status = (f.element == Element::kHalf ? one.fp16 : one.bf16)(p, plan, stream);
  if (status == cudaSuccess && plan.num_chunks > 1) status = sm90::sum_partials(p, plan, stream);
  return status == cudaSuccess ? sm90::mend_gradients(p, plan, stream) : status;
}

}  // namespace nsa::device
