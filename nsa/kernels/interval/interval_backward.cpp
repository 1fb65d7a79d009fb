// Chooses the instantiation of the backward pass and how its work is cut into units.
#include "nsa/kernels/interval/interval_backward.h"

#include <algorithm>

#include "nsa/kernels/common/alignment.h"
#include "nsa/kernels/common/ceil_div.h"
#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/interval/interval_bounds.h"
#include "nsa/kernels/interval/interval_rows.h"
#include "nsa/kernels/interval/sm80/interval_backward_launch.h"
#include "nsa/kernels/interval/sm90/interval_backward_launch.h"

namespace nsa::kernels {
namespace {

using sm90::BackwardPlan;
using sm90::Span;

struct BackwardInstance {
  int qk_head_dim, v_head_dim;
  sm90::LaunchBackward launch[2][2];  // by Code, by Element
};
constexpr BackwardInstance kBackwardInstances[] = {
    {64,
     64,
     {{sm90::backward_64_64_bf16, sm90::backward_64_64_fp16},
      {sm80::backward_64_64_bf16, sm80::backward_64_64_fp16}}},
    {128,
     128,
     {{sm90::backward_128_128_bf16, sm90::backward_128_128_fp16},
      {sm80::backward_128_128_bf16, sm80::backward_128_128_fp16}}},
    {192,
     128,
     {{sm90::backward_192_128_bf16, sm90::backward_192_128_fp16},
      {sm80::backward_192_128_bf16, sm80::backward_192_128_fp16}}},
    {256, 256, {{nullptr, nullptr}, {sm80::backward_256_256_bf16, sm80::backward_256_256_fp16}}},
};

static_assert(covers_head_dims(kBackwardInstances, 1));

const BackwardInstance* find_backward_instance(const IntervalAttention& f) {
  for (const BackwardInstance& one : kBackwardInstances)
    if (one.qk_head_dim == f.qk_head_dim && one.v_head_dim == f.v_head_dim) return &one;
  return nullptr;
}

int64_t partial_bytes(const IntervalAttention& f, int64_t chunks) {
  return chunks * f.batch * f.num_kv_heads * f.num_keys * (f.qk_head_dim + f.v_head_dim) *
         int64_t{sizeof(float)};
}

/// The plan, and the bytes of its workspace; pointers only where there is a workspace.
size_t make_plan(const IntervalBackward& p, BackwardPlan& plan) {
  const IntervalAttention& f = p.forward;
  sm90::choose_chunks(f, plan);
  const int64_t rows = ceil_div(int64_t{f.batch} * f.num_queries * f.num_heads, 4) * 4;
  const bool given = p.rows.lse != nullptr;
  const size_t flags = given ? 0 : 16,
               floats = given ? 0 : static_cast<size_t>(rows) * sizeof(float);
  const size_t partials =
      plan.num_chunks > 1 ? static_cast<size_t>(partial_bytes(f, plan.num_chunks)) : 0;
  if (p.workspace != nullptr) {
    char* at = static_cast<char*>(p.workspace);
    plan.bad = reinterpret_cast<int*>(at);
    plan.lse = reinterpret_cast<float*>(at + flags);
    plan.delta = reinterpret_cast<float*>(at + flags + floats);
    plan.partials = reinterpret_cast<float*>(at + flags + 2 * floats);
  }
  if (given) {
    plan.bad = p.rows.bad;
    plan.lse = p.rows.lse;
    plan.delta = p.rows.delta;
  }
  return flags + 2 * floats + partials;
}

/// Whether both have gradients of the same rows of Q.
bool adds_up(const IntervalBackward& earlier, const IntervalBackward& p) {
  const IntervalAttention &a = earlier.forward, &b = p.forward;
  return earlier.rows.lse != nullptr && a.batch == b.batch && a.num_queries == b.num_queries &&
         a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads &&
         a.qk_head_dim == b.qk_head_dim && a.v_head_dim == b.v_head_dim && a.element == b.element;
}

cudaError_t clear(void* data, int64_t elements, cudaStream_t stream) {
  return elements == 0 ? cudaSuccess
                       : cudaMemsetAsync(data, 0, static_cast<size_t>(elements) * 2, stream);
}

}  // namespace

// The tiles of d_q, which follow, fill the rest.
void sm90::choose_chunks(const IntervalAttention& f, BackwardPlan& plan) {
  const auto tiling =
      sm90::row_tiling(f.num_heads / f.num_kv_heads, sm90::rows_of_key_pass(f.qk_head_dim));
  int64_t total = 0, longest = 1;
  for (int first = 0; first < f.num_keys; first += sm90::kKeysOfTile) {
    const Span span = sm90::queries_of(f, first, std::min(first + sm90::kKeysOfTile, f.num_keys));
    const int64_t run = std::max(0, span.end - span.begin);
    total += run * f.batch * f.num_kv_heads;
    longest = std::max(longest, run);
  }
  const int64_t share = std::max<int64_t>(total / sm90::kBusySms, 16 * tiling.tokens);
  const int64_t bytes = std::max<int64_t>(1, partial_bytes(f, 1));  // 0 without keys
  const int64_t most = std::max<int64_t>(1, int64_t{kMaxPartialBytes} / bytes);
  int64_t chunks = longest <= share ? 1 : ceil_div(longest * 4, share * 3);
  chunks = std::min(chunks, most);
  const int64_t tokens = ceil_div(ceil_div(longest, chunks), tiling.tokens) * tiling.tokens;
  plan.chunk_tokens = static_cast<int>(tokens);
  plan.num_chunks = static_cast<int>(ceil_div(longest, tokens));
}

const char* unsupported_reason(const IntervalBackward& p) {
  IntervalAttention forward = p.forward;
  forward.selection = {};
  const char* reason = unsupported_reason(forward);
  if (reason != nullptr) return reason;
  if (!aligned(p.d_out)) return "an address or stride of d_out is no multiple of 16 bytes";
  if (p.forward.first_query > 0 &&
      (p.forward.code == Code::kSm80 || p.earlier == nullptr || p.rows.lse == nullptr))
    return "queries are left out of what is added to another branch by code of sm_90 only";
  if (p.earlier != nullptr && !adds_up(*p.earlier, p))
    return "d_q is added to that of other rows, or of rows that are not given";
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
    cudaError_t status =
        p.earlier != nullptr ? cudaSuccess : clear(p.d_q, rows * f.qk_head_dim, stream);
    if (status == cudaSuccess) status = clear(p.d_k, keys * f.qk_head_dim, stream);
    return status == cudaSuccess ? clear(p.d_v, keys * f.v_head_dim, stream) : status;
  }
  BackwardPlan plan;
  if (make_plan(p, plan) > 0 && p.workspace == nullptr) return cudaErrorInvalidValue;
  const BackwardInstance& one = *find_backward_instance(f);
  cudaError_t status =
      p.rows.lse == nullptr ? portable::prepare_rows(p, plan, stream) : cudaSuccess;
  if (status == cudaSuccess) status = one.launch[int(f.code)][int(f.element)](p, plan, stream);
  return status == cudaSuccess ? portable::finish_gradients(p, plan, stream) : status;
}

}  // namespace nsa::kernels
