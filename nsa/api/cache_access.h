#pragma once
#include <vector>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/nsa.h"

namespace nsa {

/// The caches behind the public class.
struct CacheAccess {
  static LayerCache& of(DecodeCache& cache) { return *cache.caches_; }
};

/// What a decode call runs for public options on tokens of the device and type of `q`.
NsaOptions decode_options(const Options& options, const at::Tensor& q);

/// A step where no lengths are given and S = 1, or no sequence is empty; else a prefill of
/// `lengths` tokens (none given: S).
DecodeOutputs append_and_attend(LayerCache& caches, const NsaInputs& tokens,
                                const std::vector<int64_t>& lengths, const NsaOptions& options);

}  // namespace nsa
