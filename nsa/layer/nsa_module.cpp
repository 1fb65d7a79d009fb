#include "nsa/layer/nsa_module.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/layer/fused/split_projection.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/linear/rounded_linear.h"

namespace nsa {
namespace {

/// A logit from which softmax beside others and sigmoid make exactly 0; finite, in any float type.
constexpr double kNoGate = -1e4;

/// Logits [..., 3] with those of branches that are off replaced by what makes their gates 0.
at::Tensor switched_off(const at::Tensor& logits, const ProjectionConfig& projections,
                        GateActivation activation) {
  std::vector<at::Tensor> parts = logits.split(1, -1);
  for (size_t branch = 0; branch < parts.size(); ++branch)
    if (!projections.branch_on[branch])
      parts[branch] =
          at::full_like(parts[branch], activation == GateActivation::kNone ? 0 : kNoGate);
  return at::cat(parts, -1);
}

}  // namespace

NsaAttentionImpl::NsaAttentionImpl(int64_t dim, const NsaConfig& config,
                                   const ProjectionConfig& projections)
    : dim_(dim), config_(config), projections_(projections) {
  config_.validate();
  options.keep_scores = false;
  ArgumentCheck("NsaAttention").at_least("dim", dim, 1);
  w_q_ = register_linear("w_q", config_.num_heads * config_.qk_head_dim, dim);
  w_k_ = register_kv("w_k", config_.num_kv_heads * config_.qk_head_dim);
  w_v_ = register_kv("w_v", config_.num_kv_heads * config_.v_head_dim);
  if (!projections_.has_gate_mlp()) w_g_ = register_linear("w_g", config_.num_heads * 3, dim);
  w_o_ = register_linear("w_o", dim, config_.num_heads * config_.v_head_dim);
  if (projections_.has_gate_mlp()) register_gate_mlp();
  phi_k_ = register_phi("phi_k_", config_.qk_head_dim);
  phi_v_ = register_phi("phi_v_", config_.v_head_dim);
}

at::Tensor NsaAttentionImpl::register_linear(const std::string& name, int64_t out, int64_t in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  return register_parameter(name, at::empty({out, in}).uniform_(-bound, bound));
}

std::vector<at::Tensor> NsaAttentionImpl::register_kv(const std::string& name, int64_t rows) {
  if (projections_.shared_kv) return {register_linear(name, rows, dim_)};
  std::vector<at::Tensor> weights;
  for (const char* branch : {"_cmp", "_sel", "_win"})
    weights.push_back(register_linear(name + branch, rows, dim_));
  return weights;
}

void NsaAttentionImpl::register_gate_mlp() {
  const GateWeights gate = make_gate_weights(config_.qk_head_dim);
  gate_ = {register_parameter("gate_w1", gate.w1), register_parameter("gate_b1", gate.b1),
           register_parameter("gate_w2", gate.w2), register_parameter("gate_b2", gate.b2)};
}

PhiWeights NsaAttentionImpl::register_phi(const std::string& prefix, int64_t head_dim) {
  PhiWeights weights = make_phi_weights(config_, head_dim);
  const auto keep = [&](const char* name, at::Tensor& weight) {
    if (weight.defined()) weight = register_parameter(prefix + name, weight);
  };
  keep("conv", weights.conv);
  keep("pe", weights.pe);
  keep("w1", weights.w1);
  keep("b1", weights.b1);
  keep("w2", weights.w2);
  keep("b2", weights.b2);
  return weights;
}

// One product for all: small ones leave most of a card idle, and each would add to d_x by itself.
// In the order of their registration, in which their rounded copies lie.
std::vector<at::Tensor> NsaAttentionImpl::projection() const {
  std::vector<at::Tensor> matrices = {w_q_};
  matrices.insert(matrices.end(), w_k_.begin(), w_k_.end());
  matrices.insert(matrices.end(), w_v_.begin(), w_v_.end());
  if (w_g_.defined()) matrices.push_back(w_g_);
  return matrices;
}

NsaInputs NsaAttentionImpl::split(const at::Tensor& columns, const at::Tensor& cu_seqlens) const {
  NsaInputs in = split_projection(columns, gate_, config_, projections_);
  if (!projections_.all_branches())
    in.gate_logits = switched_off(in.gate_logits, projections_, config_.gate);
  in.cu_seqlens = cu_seqlens;
  in.phi_k = phi_k_;
  in.phi_v = phi_v_;
  return in;
}

NsaInputs NsaAttentionImpl::project(const at::Tensor& x, const at::Tensor& cu_seqlens) const {
  const ArgumentCheck check("NsaAttention");
  check.floating("x", x);
  if (cu_seqlens.defined()) {
    check.sizes("x", x, {-1, dim_}, "[T, dim] with cu_seqlens");
  } else {
    check.sizes("x", x, {-1, -1, dim_}, "[B, S, dim]");
  }
  const NvtxRange range("nsa.project");
  return split(rounded_linear(x, projection()), cu_seqlens);
}

at::Tensor NsaAttentionImpl::project_out(const at::Tensor& o) const {
  const NvtxRange range("nsa.project");
  return rounded_linear(o.flatten(-2), {w_o_});
}

NsaAttentionImpl::Detailed NsaAttentionImpl::forward_detailed(const at::Tensor& x,
                                                              const at::Tensor& cu_seqlens) {
  return attend(project(x, cu_seqlens));
}

NsaAttentionImpl::Detailed NsaAttentionImpl::forward_projected(const at::Tensor& columns,
                                                               const at::Tensor& cu_seqlens) {
  const auto inputs = [&] {
    const NvtxRange range("nsa.project");
    return split(columns, cu_seqlens);
  };
  return attend(inputs());
}

NsaAttentionImpl::Detailed NsaAttentionImpl::attend(const NsaInputs& inputs) {
  Detailed result;
  result.attention = nsa_attention(inputs, config_, options);
  result.y = project_out(result.attention.o);
  return result;
}

at::Tensor NsaAttentionImpl::forward(const at::Tensor& x, const at::Tensor& cu_seqlens) {
  return forward_detailed(x, cu_seqlens).y;
}

}  // namespace nsa
