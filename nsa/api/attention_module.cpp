#include <ATen/ATen.h>

#include "nsa/api/attention_call.h"
#include "nsa/api/cache_access.h"
#include "nsa/layer/nsa_module.h"

namespace nsa {

// The parameters of the layer under their own names: this module shares them, so what changes them
// in place (an optimizer, `to`, loading) changes both.
AttentionImpl::AttentionImpl(int64_t dim, const Config& config, const Options& settings)
    : torch::nn::Module("nsa::Attention"),
      options(settings),
      layer_(std::make_shared<NsaAttentionImpl>(dim, config)) {
  for (const auto& parameter : layer_->named_parameters())
    register_parameter(parameter.key(), parameter.value());
}

at::Tensor AttentionImpl::forward(const at::Tensor& x, const at::Tensor& cu_seqlens) {
  layer_->options = whole_call_options(options.backend, options.strict, x);
  layer_->options.block_idx = options.block_idx;
  return layer_->forward(x, cu_seqlens);
}

at::Tensor AttentionImpl::forward(const at::Tensor& x, DecodeCache& cache,
                                  const std::vector<int64_t>& lengths) {
  const DecodeOutputs out = append_and_attend(CacheAccess::of(cache), layer_->project(x), lengths,
                                              decode_options(options, x));
  return layer_->project_out(out.o);
}

DecodeCache AttentionImpl::make_cache(int64_t num_sequences, int64_t capacity,
                                      at::TensorOptions tensor_options) const {
  return DecodeCache(
      std::make_unique<LayerCache>(layer_->config(), num_sequences, capacity, tensor_options));
}

}  // namespace nsa
