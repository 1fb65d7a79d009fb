// Chooses the instantiation and enqueues the steps of the selected branch's backward pass.
#include "nsa/device/selected_backward.h"

#include "nsa/device/alignment.h"
#include "nsa/device/sm80/selected_sums.h"
#include "nsa/device/sm80/tile_index.h"
#include "nsa/device/sm90/selected_backward_launch.h"

namespace nsa::device {
namespace {

struct SelectedInstance {
  int qk_head_dim, v_head_dim;
  Element element;
  sm90::SelectedBackwardLaunch launch;
};

constexpr SelectedInstance kSelectedInstances[] = {
    {64, 64, Element::kBFloat16, sm90::selected_backward_64_64_bf16},
    {64, 64, Element::kHalf, sm90::selected_backward_64_64_fp16},
    {128, 128, Element::kBFloat16, sm90::selected_backward_128_128_bf16},
    {128, 128, Element::kHalf, sm90::selected_backward_128_128_fp16},
    {192, 128, Element::kBFloat16, sm90::selected_backward_192_128_bf16},
    {192, 128, Element::kHalf, sm90::selected_backward_192_128_fp16},
};

const SelectedInstance* find_instance(const SelectedBackward& p) {
  for (const SelectedInstance& one : kSelectedInstances)
    if (one.qk_head_dim == p.qk_head_dim && one.v_head_dim == p.v_head_dim &&
        one.element == p.element)
      return &one;
  return nullptr;
}

SelectedPlan plan_of(const SelectedBackward& p) {
  return plan_selected(selected_sizes(p, p.max_tiles_of_row, SelectedPass::kBackward));
}

}  // namespace

const char* unsupported_reason(const SelectedBackward& p) {
  if (p.num_kv_heads < 1 || p.num_heads % p.num_kv_heads != 0) return "Hkv must divide Hq";
  if (p.num_heads / p.num_kv_heads > 64) return "more than 64 query heads a KV head";
  if (find_instance(p) == nullptr) return "head dims dk/dv are none of 64/64, 128/128, 192/128";
  if (p.num_ranges > 32) return "more than 32 ranges a row";
  if (!aligned(p.q) || !aligned(p.k) || !aligned(p.v) || !aligned(p.d_out))
    return "an address or stride is no multiple of 16 bytes";
  return unsupported_index(selected_sizes(p, p.max_tiles_of_row, SelectedPass::kBackward));
}

size_t workspace_bytes(const SelectedBackward& p) {
  return p.batch == 0 || p.num_queries == 0 ? 0 : plan_of(p).bytes;
}

cudaError_t selected_attention_backward(const SelectedBackward& p, void* workspace,
                                        cudaStream_t stream) {
  if (unsupported_reason(p) != nullptr) return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_queries == 0) return cudaSuccess;
  const SelectedPlan plan = plan_of(p);
  const auto launch = find_instance(p)->launch;
  cudaError_t status =
      sm80::build_tile_index(sm80::token_ranges(p, p.num_queries), plan, workspace, stream);
  if (status == cudaSuccess && p.stats == nullptr)
    status = sm80::row_stats(p, plan, workspace, stream);
  for (int set = 0; status == cudaSuccess && set < plan.sets(); ++set) {
    status = launch(p, plan, workspace, set, stream);
    if (status == cudaSuccess) status = sm80::sum_key_slots(p, plan, workspace, set, stream);
    if (status == cudaSuccess) status = sm80::sum_query_parts(p, plan, workspace, set, stream);
  }
  return status;
}

}  // namespace nsa::device
