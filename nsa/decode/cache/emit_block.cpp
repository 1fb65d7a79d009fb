#include "nsa/decode/cache/emit_block.h"

#include <ATen/ATen.h>

#include "nsa/ops/common/check.h"
#include "nsa/ops/rope/rope.h"

namespace nsa {

std::pair<at::Tensor, at::Tensor> emit_block(const LoadedKv& source, const at::Tensor& block,
                                             const PhiWeights& phi_k, const PhiWeights& phi_v,
                                             const NsaConfig& config) {
  const at::ScalarType type = source.k.scalar_type();
  // In the accumulation type, so that a rotation after pooling happens before the one rounding.
  const auto tokens = [&](const at::Tensor& x) {
    return x.transpose(1, 2).to(accumulation_type(type));
  };
  NsaConfig unrotated = config;
  unrotated.rope = RopeMode::kNone;
  auto [k, v] = compress(tokens(source.k), tokens(source.v), phi_k, phi_v, unrotated);
  if (config.rope == RopeMode::kBlockStart) {
    k = rope(k, block.mul(config.block_stride).unsqueeze(1), config.rope_base, config.rope_pairs);
  }
  return {k.squeeze(1).to(type), v.squeeze(1).to(type)};
}

}  // namespace nsa
