#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "nsa/config/projection_config.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/ops/gate/gate.h"

namespace nsa {

/// The attention layer: projections, phi weights, gates, output projection. Composition only.
/// Parameters keep their own type (fp32 masters); they are rounded to the type of x for the matrix
/// products of a call, and gradients come back in the parameter's type.
/// Parameters, all without bias, initialised as LibTorch's Linear: w_q [Hq*dk, dim];
/// w_k_{cmp,sel,win} [Hkv*dk, dim]; w_v_{cmp,sel,win} [Hkv*dv, dim]; w_o [dim, Hq*dv]; and
/// gate_{w1,b1,w2,b2}; phi_{k,v}_{conv | pe,w1,b1,w2,b2} as the configured phi needs. With a shared
/// K and V w_k and w_v take the place of the three; with linear gates w_g [Hq*3, dim], in a head's
/// rows compressed, selected, window, that of the gate MLP.
class NsaAttentionImpl : public torch::nn::Module {
 public:
  NsaAttentionImpl(int64_t dim, const NsaConfig& config, const ProjectionConfig& projections = {});

  /// x [B, S, dim], or packed [T, dim] with cu_seqlens int32 [docs + 1] -> same shape.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& cu_seqlens = {});

  /// The same, with every stage's outputs: `y` is what forward returns.
  struct Detailed {
    at::Tensor y;
    NsaOutputs attention;
  };
  Detailed forward_detailed(const at::Tensor& x, const at::Tensor& cu_seqlens = {});
  /// The same of what the projection has made of x: `columns` [..., rows of projection()].
  Detailed forward_projected(const at::Tensor& columns, const at::Tensor& cu_seqlens = {});
  /// Matrices of the projection, one below the other.
  std::vector<at::Tensor> projection() const;

  /// The parts of a forward pass around the attention call, for callers that run it another way:
  /// x -> un-rotated q, K, V and gate logits; o [..., Hq, dv] -> [..., dim].
  NsaInputs project(const at::Tensor& x, const at::Tensor& cu_seqlens = {}) const;
  at::Tensor project_out(const at::Tensor& o) const;

  const NsaConfig& config() const { return config_; }
  NsaOptions options;  ///< used by every forward; scores are not kept

 private:
  Detailed attend(const NsaInputs& inputs);
  NsaInputs split(const at::Tensor& columns, const at::Tensor& cu_seqlens) const;
  std::vector<at::Tensor> register_kv(const std::string& name, int64_t rows);
  at::Tensor register_linear(const std::string& name, int64_t out, int64_t in);
  void register_gate_mlp();
  PhiWeights register_phi(const std::string& prefix, int64_t head_dim);

  int64_t dim_;
  NsaConfig config_;
  ProjectionConfig projections_;
  at::Tensor w_q_, w_g_, w_o_;         ///< w_g_ undefined with a gate MLP
  std::vector<at::Tensor> w_k_, w_v_;  ///< one, or of compression, selection, window
  GateWeights gate_;                   ///< undefined with linear gates
  PhiWeights phi_k_, phi_v_;
};
TORCH_MODULE(NsaAttention);

}  // namespace nsa
