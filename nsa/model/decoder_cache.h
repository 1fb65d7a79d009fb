#pragma once
#include <optional>
#include <vector>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/model/decoder.h"

namespace nsa {

/// A decoder with the caches of all its layers: reads tokens once, then answers token by token.
/// For inference: nothing is recorded for gradients.
class DecoderCache {
 public:
  /// Caches in the model's compute type on the device of its parameters; `capacity`: most tokens a
  /// sequence may reach. The model is shared, not copied.
  DecoderCache(Decoder model, int64_t num_sequences, int64_t capacity,
               const LayerCacheOptions& memory = {});

  /// tokens int64 [B, S], the first lengths[b] of row b -> logits [B, S, vocab]; rows behind a
  /// length mean nothing. Errors as LayerCache::prefill.
  at::Tensor prefill(const at::Tensor& tokens, const std::vector<int64_t>& lengths);
  /// tokens int64 [A, S], S >= 1 for each of `sequences` (all, unless given) -> logits [A, S,
  /// vocab]: one after the other, or drafted ones, of which truncate takes back what is not
  /// accepted.
  at::Tensor step(const at::Tensor& tokens,
                  const std::optional<std::vector<int64_t>>& sequences = std::nullopt);
  /// Empties a sequence in every layer.
  void reset(int64_t sequence);
  /// Takes the last tokens of a sequence back in every layer, as LayerCache::truncate.
  void truncate(int64_t sequence, int64_t num_tokens);

  /// The cache of one layer.
  LayerCache& layer(size_t index) { return layers_.at(index); }

 private:
  Decoder model_;
  std::vector<LayerCache> layers_;
};

}  // namespace nsa
