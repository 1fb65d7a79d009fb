#include "nsa/layer/nsa_module.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/layer/fused/split_projection.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/linear/rounded_linear.h"

namespace nsa {
NsaAttentionImpl::NsaAttentionImpl(int64_t dim, const NsaConfig& config)
    : dim_(dim), config_(config) {
  config_.validate();
  options.keep_scores = false;
  ArgumentCheck("NsaAttention").at_least("dim", dim, 1);
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    return register_parameter(name, at::empty({out, in}).uniform_(-bound, bound));
  };
  const int64_t q_dim = config_.num_heads * config_.qk_head_dim;
  const int64_t k_dim = config_.num_kv_heads * config_.qk_head_dim;
  const int64_t v_dim = config_.num_kv_heads * config_.v_head_dim;
  w_q_ = linear("w_q", q_dim, dim);
  w_k_cmp_ = linear("w_k_cmp", k_dim, dim);
  w_k_sel_ = linear("w_k_sel", k_dim, dim);
  w_k_win_ = linear("w_k_win", k_dim, dim);
  w_v_cmp_ = linear("w_v_cmp", v_dim, dim);
  w_v_sel_ = linear("w_v_sel", v_dim, dim);
  w_v_win_ = linear("w_v_win", v_dim, dim);
  w_o_ = linear("w_o", dim, config_.num_heads * config_.v_head_dim);
  const GateWeights gate = make_gate_weights(config_.qk_head_dim);
  gate_ = {register_parameter("gate_w1", gate.w1), register_parameter("gate_b1", gate.b1),
           register_parameter("gate_w2", gate.w2), register_parameter("gate_b2", gate.b2)};
  phi_k_ = register_phi("phi_k_", config_.qk_head_dim);
  phi_v_ = register_phi("phi_v_", config_.v_head_dim);
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
  return {w_q_, w_k_cmp_, w_k_sel_, w_k_win_, w_v_cmp_, w_v_sel_, w_v_win_};
}

NsaInputs NsaAttentionImpl::split(const at::Tensor& columns, const at::Tensor& cu_seqlens) const {
  NsaInputs in = split_projection(columns, gate_, config_);
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
