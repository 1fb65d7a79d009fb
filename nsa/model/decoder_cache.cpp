#include "nsa/model/decoder_cache.h"

#include <ATen/core/grad_mode.h>

#include "nsa/decode/module_decode.h"

namespace nsa {
namespace {

NsaAttentionImpl::Detailed detailed(ModuleOutputs out) { return {out.y, out.attention}; }

}  // namespace

DecoderCache::DecoderCache(Decoder model, int64_t num_sequences, int64_t capacity,
                           const LayerCacheOptions& memory)
    : model_(std::move(model)) {
  TORCH_CHECK(model_->config().attention_kind == AttentionKind::kNsa,
              "nsa::DecoderCache: model must attend with NSA, got the dense model ",
              model_->config().name);
  const at::TensorOptions options = model_->parameters().front().options();
  for (int64_t i = 0; i < model_->config().num_layers; ++i) {
    layers_.emplace_back(model_->config().attention, num_sequences, capacity,
                         options.dtype(model_->compute_type).requires_grad(false), memory);
  }
}

at::Tensor DecoderCache::prefill(const at::Tensor& tokens, const std::vector<int64_t>& lengths) {
  const at::NoGradGuard no_grad;
  const auto attend = [&](size_t i, NsaAttentionImpl& attention, const at::Tensor& x) {
    return detailed(nsa::prefill(attention, layers_[i], x, lengths));
  };
  return model_->forward(tokens, {}, attend).logits;
}

at::Tensor DecoderCache::step(const at::Tensor& tokens,
                              const std::optional<std::vector<int64_t>>& sequences) {
  const at::NoGradGuard no_grad;
  const auto attend = [&](size_t i, NsaAttentionImpl& attention, const at::Tensor& x) {
    return detailed(nsa::step(attention, layers_[i], x, sequences));
  };
  return model_->forward(tokens, {}, attend).logits;
}

void DecoderCache::reset(int64_t sequence) {
  for (LayerCache& layer : layers_) layer.reset(sequence);
}

void DecoderCache::truncate(int64_t sequence, int64_t num_tokens) {
  for (LayerCache& layer : layers_) layer.truncate(sequence, num_tokens);
}

}  // namespace nsa
