#include "nsa/train/memory/step_workspace.h"

#include <ATen/ops/empty.h>

#include "nsa/ops/selected/backends.h"
#ifdef NSA_WITH_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#endif

namespace nsa::train {

#ifdef NSA_WITH_CUDA
namespace {

/// The thread of the forward pass has one, that of the backward pass another.
constexpr double kProductWorkspaces = 2;

/// Tensors of a layer's sizes on one element each.
SelAttnArgs selected_sizes(const ModelConfig& model, const StepShape& shape, at::ScalarType type,
                           at::Device device) {
  const NsaConfig& c = model.attention;
  const int64_t b = shape.batch, s = shape.seq_len, n = s * shape.context_ranks;
  const at::Tensor value = at::empty({1}, at::device(device).dtype(type));
  const at::Tensor index = at::empty({1}, at::device(device).dtype(at::kInt));
  return {.q = value.expand({b, s, c.num_heads, c.qk_head_dim}),
          .k = value.expand({b, n, c.num_kv_heads, c.qk_head_dim}),
          .v = value.expand({b, n, c.num_kv_heads, c.v_head_dim}),
          .ranges = index.expand({b, s, c.num_kv_heads, c.top_n, 2}),
          .first_position = 0,
          .scale = 1,
          .block_size = c.sel_block_size};
}

}  // namespace

StepShape with_workspaces(StepShape shape, const ModelConfig& model, at::ScalarType type,
                          at::Device device) {
  if (!device.is_cuda()) return shape;
  shape.products_workspace =
      kProductWorkspaces * static_cast<double>(at::cuda::getChosenWorkspaceSize());
  if (shape.kernels && model.attention_kind != AttentionKind::kDense)
    shape.selected_workspace_per_token = static_cast<double>(sel_attn_backward_workspace(
                                             selected_sizes(model, shape, type, device))) /
                                         static_cast<double>(shape.batch * shape.seq_len);
  return shape;
}
#else
StepShape with_workspaces(StepShape shape, const ModelConfig&, at::ScalarType, at::Device) {
  return shape;
}
#endif

}  // namespace nsa::train
