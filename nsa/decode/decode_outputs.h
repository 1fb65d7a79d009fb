#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// What an attention call in any mode returns.
struct DecodeOutputs : NsaOutputs {
  /// int64 [B, S, Hkv, 3] in the order cmp, sel, win: keys and values a row attended. Rows that
  /// went through caches: index entries loaded. Undefined where nothing was counted.
  at::Tensor reads;
};

/// Loads of all steps since a cache was made or reset, beside `reads`; int64.
struct DecodeCounters {
  at::Tensor emission_reads;  ///< [B, Hkv] source tokens loaded to make compressed blocks
  at::Tensor padding_loads;   ///< [B, Hkv, 3] padding that was loaded (other sequences are longer)
  at::Tensor second_pass_reads;  ///< [B, Hkv, 3] index entries loaded again in the same step
};

}  // namespace nsa
