#include "nsa/train/memory/last_layer.h"

#include <algorithm>

namespace nsa::train {
namespace {

constexpr double kFloatBytes = 4;  ///< bytes of the accumulation type; fp64 accumulates in itself

struct Sizes {
  double tokens, e, dim, hidden;
  double q, pair, output;  ///< of a token: queries, keys and values of a branch, one output
};

Sizes sizes_of(const ModelConfig& model, const StepShape& shape) {
  const NsaConfig& c = model.attention;
  const auto e = static_cast<double>(shape.value_bytes);
  return {.tokens = static_cast<double>(shape.batch * shape.seq_len),
          .e = e,
          .dim = static_cast<double>(model.dim),
          .hidden = static_cast<double>(model.mlp_hidden),
          .q = static_cast<double>(c.num_heads * c.qk_head_dim) * e,
          .pair = static_cast<double>(c.num_kv_heads * (c.qk_head_dim + c.v_head_dim)) * e,
          .output = static_cast<double>(c.num_heads * c.v_head_dim) * e};
}

/// Gradients of the MLP's three products and of their inputs, of the stream, and of gate's and up's
/// weights in the compute type. The last norm's tensors are gone.
double at_mlp(const Sizes& s) {
  return s.tokens * (3 * s.hidden + s.dim) * s.e + 2 * s.hidden * s.dim * s.e -
         2 * s.tokens * s.dim * s.e;
}

/// Gradients of the projection, of attention's output, of the stream and of q; pairs of statistics
/// of three branches; keys' and values' gradients of three. The last norm's tensors, the MLP's, the
/// sum it stood on and the outputs of branches are gone; gradients of the MLP's weights are there.
double at_attention(const ModelConfig& model, const StepShape& shape, const Sizes& s,
                    bool gradients_kept) {
  const auto heads = static_cast<double>(model.attention.num_heads);
  const auto sets = static_cast<double>(model.projections.num_kv());
  const double come = s.q + sets * s.pair + s.output + s.dim * s.e + s.q +
                      3 * 2 * kFloatBytes * heads + 3 * s.pair + shape.selected_workspace_per_token;
  const double gone = 3 * s.dim * s.e + 2 * s.hidden * s.e + 3 * s.output;
  const double weights =
      gradients_kept ? 0 : 3 * s.dim * s.hidden * static_cast<double>(shape.master_bytes);
  return s.tokens * (come - gone) + weights;
}

}  // namespace

double logits_bytes(const ModelConfig& model, const StepShape& shape) {
  const double sum = std::max(kFloatBytes, static_cast<double>(shape.value_bytes));
  return static_cast<double>(shape.batch * shape.seq_len * model.vocab) * 3 * sum;
}

double last_layer_bytes(const ModelConfig& model, const StepShape& shape, bool gradients_kept) {
  if (!shape.kernels || model.attention_kind == AttentionKind::kDense) return 0;
  const Sizes sizes = sizes_of(model, shape);
  return std::max(at_mlp(sizes), at_attention(model, shape, sizes, gradients_kept));
}

}  // namespace nsa::train
