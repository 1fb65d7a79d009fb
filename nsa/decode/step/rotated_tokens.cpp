#include "nsa/decode/step/rotated_tokens.h"

#include "nsa/ops/rope/rope.h"

namespace nsa {

RotatedTokens rotate_tokens(const NsaInputs& tokens, const at::Tensor& positions,
                            const NsaConfig& config) {
  if (config.rope == RopeMode::kNone) {
    return {tokens.q, tokens.k_sel, tokens.k_win, tokens.k_cmp_src};
  }
  Rotation rotation(positions, config.rope_base, config.rope_pairs);
  const bool before_pool = config.rope == RopeMode::kBeforePool;
  return {rotation(tokens.q), rotation(tokens.k_sel), rotation(tokens.k_win),
          before_pool ? rotation(tokens.k_cmp_src) : tokens.k_cmp_src};
}

}  // namespace nsa
