// All keys up to the last query of a chunk, masked: the dense engine that all branches share.
#include "nsa/ops/attention/chunked_attention.h"
#include "nsa/ops/selected/backends.h"

namespace nsa {

SelAttnResult sel_attn_masked(const SelAttnArgs& args) {
  record_backend("sel_attn", "masked", "masked", "", "", /*strict=*/false);
  const KeyMask mask{KeyMask::kRanges, args.first_position, 0, 1, args.ranges};
  const AttentionResult result = chunked_attention(args.q, args.k, args.v, mask, args.scale);
  return {result.out, result.lse};
}

}  // namespace nsa
