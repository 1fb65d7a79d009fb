#pragma once
#include <string>
#include <vector>

#include "nsa/decode/cache/layer_cache.h"

namespace nsa {

/// The ways to run one attention call; they agree within the tolerance table
/// (docs/semantics.md, Modes).
enum class Mode {
  kBatched,     ///< whole tensors: training, prefill
  kSequential,  ///< every token alone, no state
  kDecode,      ///< prefill, then one token at a time through caches
};
/// "batched", "sequential", "decode". The parser throws std::invalid_argument naming the value and
/// the choices.
std::string to_string(Mode mode);
Mode parse_mode(const std::string& text);

/// Decode mode for a whole run: sequence b is prefilled with prefill[b] tokens (none, unless
/// given), the rest are single steps. Outputs as nsa_attention, and reads: of prefilled rows the
/// keys that the masks allowed, of the others the index entries loaded. Throws by name.
DecodeOutputs decode_attention(const NsaInputs& inputs, const NsaConfig& config,
                               const NsaOptions& options = {},
                               const std::vector<int64_t>& prefill = {},
                               const LayerCacheOptions& memory = {});

/// The steps of decode_attention alone: every token of inputs [B, S, ...] that `cache` does not
/// hold yet, joined with the rows of `prefilled` [B, >= its lengths, ...]. k_cmp and v_cmp stay in
/// the cache.
DecodeOutputs decode_rest(LayerCache& cache, const NsaInputs& inputs, const NsaConfig& config,
                          const DecodeOutputs& prefilled, const NsaOptions& options = {});

/// The call in any mode; `prefill` and `memory` are for decode. `reads` comes from decode only.
DecodeOutputs run_attention(Mode mode, const NsaInputs& inputs, const NsaConfig& config,
                            const NsaOptions& options = {},
                            const std::vector<int64_t>& prefill = {},
                            const LayerCacheOptions& memory = {});

}  // namespace nsa
