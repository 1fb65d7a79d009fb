#include "nsa/decode/rotated_tokens.h"

#include "nsa/rope/rope.h"

namespace nsa {

RotatedTokens rotate_tokens(const NsaInputs& tokens, const at::Tensor& positions,
                            const NsaConfig& config) {
  if (config.rope == RopeMode::kNone) {
    return {tokens.q, tokens.k_sel, tokens.k_win, tokens.k_cmp_src};
  }
  const at::Tensor table =
      rope_table(positions, config.qk_head_dim, config.rope_base, tokens.q.scalar_type());
  const bool before_pool = config.rope == RopeMode::kBeforePool;
  return {rope_apply(tokens.q, table), rope_apply(tokens.k_sel, table),
          rope_apply(tokens.k_win, table),
          before_pool ? rope_apply(tokens.k_cmp_src, table) : tokens.k_cmp_src};
}

}  // namespace nsa
