#pragma once
#include <optional>
#include <vector>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/layer/nsa_module.h"

namespace nsa {

/// What a module returns for tokens that went through a cache.
struct ModuleOutputs {
  at::Tensor y;             ///< [B, S, dim]
  DecodeOutputs attention;  ///< as LayerCache returns them
};

/// NsaAttention with caches instead of whole tensors; x is what forward takes. The cache must have
/// the module's configuration, float type of x and device. The module's options apply.
///   prefill: x [B, S, dim], the first lengths[b] tokens of row b.
///   step: x [A, S, dim], S tokens for each of `sequences` (all, unless given).
ModuleOutputs prefill(NsaAttentionImpl& module, LayerCache& cache, const at::Tensor& x,
                      const std::vector<int64_t>& lengths);
ModuleOutputs step(NsaAttentionImpl& module, LayerCache& cache, const at::Tensor& x,
                   const std::optional<std::vector<int64_t>>& sequences = std::nullopt);

}  // namespace nsa
