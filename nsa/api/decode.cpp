#include <ATen/ATen.h>

#include <utility>

#include "nsa/api/attention_call.h"
#include "nsa/api/cache_access.h"
#include "nsa/decode/cache/layer_cache.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

void check_cache_config(const Config& config) {
  try {
    config.validate();
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, "nsa::DecodeCache: ", error.what());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(config.phi == Phi::kMean,
                              "nsa::DecodeCache: config.phi must be mean, got ",
                              to_string(config.phi), "; use Attention::make_cache");
}

}  // namespace

DecodeCache::DecodeCache(const Config& config, int64_t num_sequences, int64_t capacity,
                         at::TensorOptions options)
    : caches_((check_cache_config(config),
               std::make_unique<LayerCache>(config, num_sequences, capacity, options))) {}
DecodeCache::DecodeCache(std::unique_ptr<LayerCache> caches) : caches_(std::move(caches)) {}
DecodeCache::DecodeCache(DecodeCache&& other) noexcept = default;
DecodeCache& DecodeCache::operator=(DecodeCache&& other) noexcept = default;
DecodeCache::~DecodeCache() = default;

int64_t DecodeCache::num_sequences() const { return caches_->num_sequences(); }
int64_t DecodeCache::capacity() const { return caches_->capacity(); }
int64_t DecodeCache::num_tokens(int64_t sequence) const {
  if (sequence < 0 || sequence >= num_sequences()) {
    ArgumentCheck("DecodeCache")
        .fail("sequence", "in 0.." + std::to_string(num_sequences() - 1), std::to_string(sequence));
  }
  return caches_->num_tokens(sequence);
}
int64_t DecodeCache::bytes() const { return caches_->bytes(); }
void DecodeCache::reset(int64_t sequence) { caches_->reset(sequence); }
void DecodeCache::reserve(int64_t num_tokens) { caches_->reserve(num_tokens); }
void DecodeCache::before_replay(int64_t new_tokens) { caches_->before_replay(new_tokens); }
void DecodeCache::truncate(int64_t sequence, int64_t num_tokens) {
  caches_->truncate(sequence, num_tokens);
}

NsaOptions decode_options(const Options& options, const at::Tensor& q) {
  NsaOptions result = whole_call_options(options.backend, options.strict, q);
  result.block_idx = options.block_idx;
  return result;
}

DecodeOutputs append_and_attend(LayerCache& caches, const NsaInputs& tokens,
                                const std::vector<int64_t>& lengths, const NsaOptions& options) {
  bool longer = true;  // every sequence
  for (int64_t id = 0; id < caches.num_sequences(); ++id)
    longer = longer && caches.num_tokens(id) > 0;
  const bool step = tokens.q.dim() == 4 && lengths.empty() &&
                    (tokens.q.size(1) == 1 || (longer && tokens.q.size(1) > 1));
  if (step) return caches.step(tokens, options);
  const int64_t num_tokens = tokens.q.dim() > 1 ? tokens.q.size(1) : 0;
  const std::vector<int64_t> all(static_cast<size_t>(caches.num_sequences()), num_tokens);
  return caches.prefill(tokens, lengths.empty() ? all : lengths, options);
}

at::Tensor decode(DecodeCache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& gates, const Options& options, const BranchTensors& branches,
                  const std::vector<int64_t>& lengths) {
  const ArgumentCheck check("decode");
  check.defined("q", q), check.defined("k", k), check.defined("v", v);
  check.defined("gates", gates);
  TORCH_CHECK_NOT_IMPLEMENTED(!branches.k_cmp.defined() && !branches.v_cmp.defined(),
                              "nsa::decode: k_cmp and v_cmp must be absent, as a cache compresses "
                              "k and v itself; got a tensor");
  AttentionCall call;
  call.tensors = {
      q, k, v, gates, {}, {}, branches.k_sel, branches.v_sel, branches.k_win, branches.v_win};
  return append_and_attend(CacheAccess::of(cache), layer_inputs(call), lengths,
                           decode_options(options, q))
      .o;
}

}  // namespace nsa
