// Chooses the instantiation and enqueues the steps of the selected branch's forward pass in the
// order of keys.
#include "nsa/device/selected_forward.h"

#include "nsa/device/selected_plan.h"
#include "nsa/device/sm80/selected_join.h"
#include "nsa/device/sm80/tile_index.h"
#include "nsa/device/sm90/selected_forward_launch.h"

namespace nsa::device {
namespace {

struct ForwardInstance {
  int qk_head_dim, v_head_dim;
  Element element;
  sm90::SelectedForwardLaunch launch;
};

constexpr ForwardInstance kForwardInstances[] = {
    {64, 64, Element::kBFloat16, sm90::selected_forward_64_64_bf16},
    {64, 64, Element::kHalf, sm90::selected_forward_64_64_fp16},
    {128, 128, Element::kBFloat16, sm90::selected_forward_128_128_bf16},
    {128, 128, Element::kHalf, sm90::selected_forward_128_128_fp16},
    {192, 128, Element::kBFloat16, sm90::selected_forward_192_128_bf16},
    {192, 128, Element::kHalf, sm90::selected_forward_192_128_fp16},
};

const ForwardInstance* find_forward(const RowAttention& p) {
  for (const ForwardInstance& one : kForwardInstances)
    if (one.qk_head_dim == p.qk_head_dim && one.v_head_dim == p.v_head_dim &&
        one.element == p.element)
      return &one;
  return nullptr;
}

SelectedPlan forward_plan(const RowAttention& p, int max_tiles_of_row) {
  return plan_selected(selected_sizes(p, max_tiles_of_row, SelectedPass::kForward));
}

}  // namespace

const char* unsupported_by_keys(const RowAttention& p, int max_tiles_of_row) {
  const char* reason = unsupported_reason(p);
  if (reason != nullptr) return reason;
  return find_forward(p) == nullptr
             ? "head dims dk/dv are none of 64/64, 128/128, 192/128"
             : unsupported_index(selected_sizes(p, max_tiles_of_row, SelectedPass::kForward));
}

size_t workspace_bytes(const RowAttention& p, int max_tiles_of_row) {
  return p.batch == 0 || p.num_queries == 0 ? 0 : forward_plan(p, max_tiles_of_row).bytes;
}

cudaError_t selected_attention_forward(const RowAttention& p, int max_tiles_of_row, void* workspace,
                                       cudaStream_t stream) {
  if (unsupported_by_keys(p, max_tiles_of_row) != nullptr) return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_queries == 0) return cudaSuccess;
  const SelectedPlan plan = forward_plan(p, max_tiles_of_row);
  const auto launch = find_forward(p)->launch;
  cudaError_t status = sm80::build_tile_index(sm80::token_ranges(p), plan, workspace, stream);
  for (int set = 0; status == cudaSuccess && set < plan.sets(); ++set) {
    status = launch(p, plan, workspace, set, stream);
    if (status == cudaSuccess) status = sm80::join_parts(p, plan, workspace, set, stream);
  }
  return status;
}

}  // namespace nsa::device
