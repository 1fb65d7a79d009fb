#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/ops/compress/compress.h"

namespace nsa {

/// One compressed token a block, in the type of sums: x [B, S, H, D], S >= l, to
/// [B, N_c, H, D]. Tokens behind the last whole block are not read.
at::Tensor pool_mean(const at::Tensor& x, int64_t block_size, int64_t block_stride);
/// conv [D, l]: one filter a channel.
at::Tensor pool_conv(const at::Tensor& x, const at::Tensor& conv, int64_t block_size,
                     int64_t block_stride);
/// x + pe, flattened token-major, Linear, SiLU, Linear.
at::Tensor pool_mlp(const at::Tensor& x, const PhiWeights& weights, int64_t block_size,
                    int64_t block_stride);

}  // namespace nsa
