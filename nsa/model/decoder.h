#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <vector>

#include "nsa/model/blocks/decoder_layer.h"
#include "nsa/model/model_config.h"
#include "nsa/model/sections.h"

namespace nsa {

/// Decoder: logits = head(RMSNorm(layers(embedding(tokens)))); the head is the embedding where the
/// configuration ties them; no biases. Parameters are fp32 (or fp64) masters, rounded to the
/// compute type where they are used, so gradients arrive in the masters' type. Weights are drawn
/// from the global generator (at::manual_seed). Names: embedding, head (untied) [vocab, dim];
/// final_norm [dim]; layerI.{attention_norm, mlp_norm} [dim]; layerI.w_gate_up [2*hidden, dim];
/// layerI.w_down [dim, hidden]; layerI.attention.* (nsa/layer/nsa_module.h).
class DecoderImpl : public torch::nn::Module {
 public:
  /// Throws InputError for an impossible configuration.
  explicit DecoderImpl(const ModelConfig& config);

  struct Outputs {
    at::Tensor logits;                  ///< [B, S, vocab], compute type
    std::vector<at::Tensor> gates;      ///< per NSA layer [B, S, Hkv or Hq, 3], activated, detached
    std::vector<RunRecordPtr> records;  ///< per layer, what ran
  };
  /// tokens [B, S] int64 -> logits. Throws c10::Error for another shape or type. `attention`
  /// replaces the attention call of every layer (caches: decoder_cache.h).
  Outputs forward(const at::Tensor& tokens, const Probe& probe = {},
                  const LayerAttention& attention = {});

  const ModelConfig& config() const { return config_; }
  int64_t num_parameters() const;

  at::ScalarType compute_type = at::kFloat;  ///< of activations and matrix products
  /// Layers keep only their input for the backward pass and compute the rest once more; gradients
  /// have the same bits. Not where a probe looks on.
  bool activation_checkpointing = false;
  void set_attention_options(const NsaOptions& options);
  /// Has every later forward pass call this in its backward pass, on the thread of that, before the
  /// attention of each layer; empty: nothing more.
  void call_before_attention_backward(const std::function<void()>& call);

  /// The parameters that each section reads (sections.h), in the order of their registration. A
  /// tied head reads the embedding, which is in the list of section 0 alone.
  std::vector<std::vector<at::Tensor>> section_parameters() const;
  /// All parameters in about the order in which a backward pass makes their gradients; those of one
  /// product side by side, in its order.
  std::vector<at::Tensor> gradient_order() const;
  SectionObserver* sections = nullptr;  ///< of every forward pass and its backward pass

 private:
  at::Tensor embed(const at::Tensor& tokens) const;
  bool rounds_weights() const;
  DecoderLayerImpl::Outputs run_layer(size_t index, const Residual& x, const Probe& probe,
                                      const LayerAttention& attention);
  DecoderLayerImpl::Outputs run_layer_checkpointed(size_t index, const Residual& x,
                                                   const LayerAttention& attention);

  ModelConfig config_;
  at::Tensor embedding_, head_, final_norm_;
  std::vector<DecoderLayer> layers_;
};
TORCH_MODULE(Decoder);

}  // namespace nsa
