#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nsa/layer/nsa_module.h"
#include "nsa/model/blocks/dense_attention.h"
#include "nsa/model/blocks/residual_norm.h"
#include "nsa/model/model_config.h"

namespace nsa {

/// Called with every intermediate result in order of computation; `where` is e.g.
/// "layer3: selected attention, o_sel".
using Probe = std::function<void(const std::string& where, const at::Tensor& value)>;

/// How the attention of layer `layer` is run on normed x [B, S, dim]; forward_detailed when empty.
using LayerAttention = std::function<NsaAttentionImpl::Detailed(
    size_t layer, NsaAttentionImpl& attention, const at::Tensor& x)>;

/// One pre-norm layer: x += attention(RMSNorm(x)); x += MLP(RMSNorm(x)). The attention is NSA, or
/// dense in a counterpart.
class DecoderLayerImpl : public torch::nn::Module {
 public:
  explicit DecoderLayerImpl(const ModelConfig& config);

  struct Outputs {
    Residual stream;      ///< [B, S, dim]
    at::Tensor gates;     ///< [B, S, Hkv or Hq, 3], activated, detached; undefined in a dense layer
    RunRecordPtr record;  ///< what ran; its backward pass writes here, too
  };
  /// Residual stream [B, S, dim] into layer `index`. "layer<index>" stands before every place that
  /// is reported to `probe`.
  Outputs forward(const Residual& in, size_t index, const Probe& probe,
                  const LayerAttention& run = {});

  NsaAttention attention{nullptr};  ///< empty in a dense layer
  /// Called in the backward pass of every forward pass, before that of the attention.
  std::function<void()> before_attention_backward;
  /// See DecoderImpl.
  std::vector<at::Tensor> gradient_order() const;

 private:
  struct Attended {
    at::Tensor y, gates;
    RunRecordPtr record;
  };
  static Attended attended(const NsaAttentionImpl::Detailed& out);
  /// The sum that goes on, and what attends to its norm.
  std::pair<at::Tensor, Attended> attend(const Residual& in, size_t index, const Probe& probe,
                                         const LayerAttention& run);
  Attended attend_normed(const at::Tensor& x, size_t index, const Probe& probe,
                         const LayerAttention& run);
  Attended attend_dense(const at::Tensor& x, const std::string& name, const Probe& probe);

  DenseAttention dense_{nullptr};  ///< empty in an NSA layer
  double norm_eps_;
  at::Tensor attention_norm_, mlp_norm_, w_gate_up_, w_down_;
};
TORCH_MODULE(DecoderLayer);

}  // namespace nsa
