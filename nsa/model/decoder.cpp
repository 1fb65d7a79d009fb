#include "nsa/model/decoder.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/model/blocks/embedding.h"
#include "nsa/model/blocks/normed_linear.h"
#include "nsa/model/recompute.h"
#include "nsa/ops/linear/rounded_linear.h"

namespace nsa {
namespace {

/// Small, so that the first logits are nearly equal and the first loss is close to ln(vocab).
constexpr double kEmbeddingStd = 0.02;

}  // namespace

DecoderImpl::DecoderImpl(const ModelConfig& config) : config_(config) {
  config_.validate();
  activation_checkpointing = config_.activation_checkpointing;
  embedding_ =
      register_parameter("embedding", at::randn({config.vocab, config.dim}).mul_(kEmbeddingStd));
  for (int64_t i = 0; i < config.num_layers; ++i)
    layers_.push_back(register_module("layer" + std::to_string(i), DecoderLayer(config_)));
  final_norm_ = register_parameter("final_norm", at::ones({config.dim}));
  head_ = config.tied_head ? embedding_
                           : register_parameter(
                                 "head", at::randn({config.vocab, config.dim}).mul_(kEmbeddingStd));
}

int64_t DecoderImpl::num_parameters() const {
  int64_t count = 0;
  for (const at::Tensor& p : parameters()) count += p.numel();
  return count;
}

void DecoderImpl::set_attention_options(const NsaOptions& options) {
  for (DecoderLayer& layer : layers_) {
    if (layer->attention.is_empty()) continue;
    layer->attention->options = options;
    layer->attention->options.keep_scores = false;  // training needs the choice only
  }
}

void DecoderImpl::call_before_attention_backward(const std::function<void()>& call) {
  for (DecoderLayer& layer : layers_) layer->before_attention_backward = call;
}

std::vector<at::Tensor> DecoderImpl::gradient_order() const {
  std::vector<at::Tensor> order = {final_norm_};
  if (!config_.tied_head) order.insert(order.begin(), head_);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
    for (const at::Tensor& parameter : (*layer)->gradient_order()) order.push_back(parameter);
  order.push_back(embedding_);
  return order;
}

std::vector<std::vector<at::Tensor>> DecoderImpl::section_parameters() const {
  std::vector<std::vector<at::Tensor>> all = {{embedding_}};
  for (const DecoderLayer& layer : layers_) all.push_back(layer->parameters());
  all.push_back({final_norm_});
  if (!config_.tied_head) all.back().push_back(head_);
  return all;
}

at::Tensor DecoderImpl::embed(const at::Tensor& tokens) const {
  const NvtxRange range("model.embedding");
  return embed_tokens(embedding_, tokens, compute_type);
}

DecoderLayerImpl::Outputs DecoderImpl::run_layer_checkpointed(size_t index, const Residual& x,
                                                              const LayerAttention& attention) {
  const auto gates = std::make_shared<at::Tensor>();
  const auto f = [layer = layers_[index], index, gates, attention](const at::Tensor& in) {
    const DecoderLayerImpl::Outputs out =
        DecoderLayer(layer)->forward({in, {}}, index, {}, attention);
    *gates = out.gates;
    return out.stream.sum();
  };
  const Recomputed result = recomputed(f, x.sum(), layers_[index]->parameters());
  return {{result.y, {}}, *gates, result.record};
}

DecoderLayerImpl::Outputs DecoderImpl::run_layer(size_t index, const Residual& x,
                                                 const Probe& probe,
                                                 const LayerAttention& attention) {
  const bool checkpointed = activation_checkpointing && !probe && at::GradMode::is_enabled();
  return checkpointed ? run_layer_checkpointed(index, x, attention)
                      : layers_[index]->forward(x, index, probe, attention);
}

/// With checkpointing a layer rounds its own weights, so that they need not lie by all the time;
/// with an observer they are not all there at once.
bool DecoderImpl::rounds_weights() const {
  return embedding_.is_cuda() && compute_type != embedding_.scalar_type() &&
         !activation_checkpointing && sections == nullptr;
}

DecoderImpl::Outputs DecoderImpl::forward(const at::Tensor& tokens, const Probe& probe,
                                          const LayerAttention& attention) {
  TORCH_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong,
              "nsa::Decoder: tokens must be int64 [B, S], got ", tokens.scalar_type(), " ",
              tokens.sizes());
  TORCH_CHECK(!attention || config_.attention_kind == AttentionKind::kNsa,
              "nsa::Decoder: model must attend with NSA where its attention is replaced, got the "
              "dense model ",
              config_.name);
  const auto report = [&](const char* place, const at::Tensor& value) {
    if (probe) probe(place, value);
  };
  std::optional<RoundedWeights> rounded;
  if (rounds_weights()) rounded.emplace(parameters(), compute_type);
  Outputs out;
  Residual x = run_section(sections, 0, {},
                           [&](const Residual&) -> Residual { return {embed(tokens), {}}; });
  report("embedding", x.x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    DecoderLayerImpl::Outputs layer;
    x = run_section(sections, i + 1, x, [&](const Residual& in) {
      layer = run_layer(i, in, probe, attention);
      return layer.stream;
    });
    if (layer.gates.defined()) out.gates.push_back(layer.gates);
    out.records.push_back(layer.record);
  }
  std::function<void(const at::Tensor&)> look;
  if (probe) look = [&](const at::Tensor& normed) { probe("final RMSNorm", normed); };
  const auto head = [&](const Residual& in) -> Residual {
    return {normed_linear(in, final_norm_, config_.norm_eps, {head_}, "model.head", look).y, {}};
  };
  out.logits = run_section(sections, layers_.size() + 1, x, head).x;
  report("logits", out.logits);
  return out;
}

}  // namespace nsa
