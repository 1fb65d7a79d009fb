#include "nsa/model/blocks/decoder_layer.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <cmath>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/model/blocks/normed_linear.h"
#include "nsa/model/blocks/swiglu.h"

namespace nsa {
namespace {

/// N(0, 1/(3 in)): the standard deviation of LibTorch's default for a linear layer.
at::Tensor draw_matrix(int64_t out, int64_t in, double scale) {
  return at::randn({out, in}).mul_(scale / std::sqrt(3.0 * static_cast<double>(in)));
}

void report_projections(const Probe& probe, const std::string& layer, const NsaInputs& in) {
  const std::pair<const char*, const at::Tensor*> inputs[] = {{"q", &in.q},
                                                              {"k_cmp_src", &in.k_cmp_src},
                                                              {"v_cmp_src", &in.v_cmp_src},
                                                              {"k_sel", &in.k_sel},
                                                              {"v_sel", &in.v_sel},
                                                              {"k_win", &in.k_win},
                                                              {"v_win", &in.v_win},
                                                              {"gate_logits", &in.gate_logits}};
  for (const auto& [name, value] : inputs)
    if (value->defined()) probe(layer + ": projection, " + name, *value);
}

void report_attention(const Probe& probe, const std::string& layer, const NsaOutputs& out) {
  const std::pair<const char*, const at::Tensor*> stages[] = {
      {"RoPE, q_rot", &out.q_rot},
      {"compression, k_cmp", &out.k_cmp},
      {"compression, v_cmp", &out.v_cmp},
      {"compressed attention, o_cmp", &out.o_cmp},
      {"selected attention, o_sel", &out.o_sel},
      {"window attention, o_win", &out.o_win},
      {"gate, gates", &out.gates},
      {"gate, o", &out.o}};
  for (const auto& [stage, value] : stages)
    if (value->defined()) probe(layer + ": " + stage, *value);
}

}  // namespace

DecoderLayerImpl::Attended DecoderLayerImpl::attended(const NsaAttentionImpl::Detailed& out) {
  return {out.y, out.attention.gates.detach(), out.attention.record};
}

DecoderLayerImpl::DecoderLayerImpl(const ModelConfig& config) : norm_eps_(config.norm_eps) {
  // Both branches of every layer add to the residual stream: scaled so that its variance does not
  // grow with depth.
  const double residual = 1.0 / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  const int64_t dim = config.dim, hidden = config.mlp_hidden;
  attention_norm_ = register_parameter("attention_norm", at::ones({dim}));
  if (config.attention_kind == AttentionKind::kDense) {
    dense_ =
        register_module("attention", DenseAttention(dim, config.attention, config.projections));
  } else {
    attention =
        register_module("attention", NsaAttention(dim, config.attention, config.projections));
    attention->options.keep_scores = false;
  }
  named_parameters()["attention.w_o"].detach().mul_(residual);
  mlp_norm_ = register_parameter("mlp_norm", at::ones({dim}));
  w_gate_up_ = register_parameter("w_gate_up", draw_matrix(2 * hidden, dim, 1.0));
  w_down_ = register_parameter("w_down", draw_matrix(dim, hidden, residual));
}

std::vector<at::Tensor> DecoderLayerImpl::gradient_order() const {
  std::vector<at::Tensor> order = {w_down_, w_gate_up_, mlp_norm_};
  for (const at::Tensor& parameter :
       dense_.is_empty() ? attention->parameters() : dense_->parameters())
    order.push_back(parameter);
  order.push_back(attention_norm_);
  return order;
}

DecoderLayerImpl::Attended DecoderLayerImpl::attend_dense(const at::Tensor& x,
                                                          const std::string& name,
                                                          const Probe& probe) {
  const DenseAttentionImpl::Outputs out = dense_->forward(x);
  if (probe) probe(name + ": dense attention, o", out.o);
  return {out.y, {}, out.record};
}

DecoderLayerImpl::Attended DecoderLayerImpl::attend_normed(const at::Tensor& x, size_t index,
                                                           const Probe& probe,
                                                           const LayerAttention& run) {
  const std::string name = "layer" + std::to_string(index);
  if (!dense_.is_empty()) return attend_dense(x, name, probe);
  // Computed once more: a probe runs when something is wrong, and the attention call hides them.
  if (probe) report_projections(probe, name, attention->project(x));
  attention->options.keep_branches = static_cast<bool>(probe);
  const NsaAttentionImpl::Detailed out =
      run ? run(index, *attention, x) : attention->forward_detailed(x);
  if (probe) report_attention(probe, name, out.attention);
  return attended(out);
}

std::pair<at::Tensor, DecoderLayerImpl::Attended> DecoderLayerImpl::attend(
    const Residual& in, size_t index, const Probe& probe, const LayerAttention& run) {
  if (dense_.is_empty() && !probe && !run) {
    const NormedLinear columns =
        normed_linear(in, attention_norm_, norm_eps_, attention->projection(), "nsa.project");
    attention->options.keep_branches = false;
    return {columns.sum, attended(attention->forward_projected(columns.y))};
  }
  const NormedResidual before = residual_norm(in, attention_norm_, norm_eps_);
  if (probe) probe("layer" + std::to_string(index) + ": RMSNorm before attention", before.normed);
  return {before.sum, attend_normed(before.normed, index, probe, run)};
}

DecoderLayerImpl::Outputs DecoderLayerImpl::forward(const Residual& in, size_t index,
                                                    const Probe& probe, const LayerAttention& run) {
  const std::string name = "layer" + std::to_string(index);
  const auto report = [&](const char* place, const at::Tensor& value) {
    if (probe) probe(name + ": " + place, value);
  };
  const auto [sum, attended] = attend(in, index, probe, run);
  report("attention projection", attended.y);
  if (before_attention_backward && attended.y.requires_grad())
    attended.y.register_hook([call = before_attention_backward](const at::Tensor&) { call(); });
  std::function<void(const at::Tensor&)> look;
  if (probe) look = [&](const at::Tensor& normed) { report("RMSNorm before MLP", normed); };
  const NormedLinear gate_up =
      normed_linear({sum, attended.y}, mlp_norm_, norm_eps_, {w_gate_up_}, "model.mlp", look);
  const at::Tensor added = [&] {
    const NvtxRange range("model.mlp");
    return swiglu(gate_up.y, w_down_);
  }();
  report("MLP", added);
  Outputs out{{gate_up.sum, added}, attended.gates, attended.record};
  if (!probe) return out;
  out.stream = {out.stream.sum(), {}};  // a probe sees the tensor that goes on
  report("residual stream", out.stream.x);
  return out;
}

}  // namespace nsa
