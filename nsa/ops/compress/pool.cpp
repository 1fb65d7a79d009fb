#include "nsa/ops/compress/pool.h"

#include <ATen/ATen.h>

#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

/// d divides l: a block is l/d consecutive strips of d tokens, shared with its neighbours.
struct Strips {
  at::Tensor x;        ///< [B, N_c + per_block - 1, d, H, D], a view
  int64_t num_blocks;  ///< N_c
  int64_t per_block;   ///< l / d
};

Strips strips_of(const at::Tensor& x, int64_t block_size, int64_t block_stride) {
  const int64_t num_blocks = (x.size(1) - block_size) / block_stride + 1;
  const int64_t per_block = block_size / block_stride;
  const int64_t num_strips = num_blocks + per_block - 1;
  return {x.narrow(1, 0, num_strips * block_stride).unflatten(1, {num_strips, block_stride}),
          num_blocks, per_block};
}

}  // namespace

at::Tensor pool_mean(const at::Tensor& x, int64_t block_size, int64_t block_stride) {
  const Strips strips = strips_of(x, block_size, block_stride);
  const at::Tensor strip_sums = strips.x.sum({2}, /*keepdim=*/false, sum_type(x));
  at::Tensor total = strip_sums.narrow(1, 0, strips.num_blocks);
  for (int64_t strip = 1; strip < strips.per_block; ++strip) {
    total = total + strip_sums.narrow(1, strip, strips.num_blocks);
  }
  return total / block_size;
}

at::Tensor pool_conv(const at::Tensor& x, const at::Tensor& conv, int64_t block_size,
                     int64_t block_stride) {
  const at::ScalarType sums = sum_type(x);
  const Strips strips = strips_of(x.to(sums), block_size, block_stride);
  const at::Tensor taps = conv.to(sums).t().unsqueeze(1);  // [l, 1, D]
  at::Tensor total;
  for (int64_t strip = 0; strip < strips.per_block; ++strip) {
    const at::Tensor part = strips.x.narrow(1, strip, strips.num_blocks)
                                .mul(taps.narrow(0, strip * block_stride, block_stride))
                                .sum({2});
    total = strip == 0 ? part : total + part;
  }
  return total;
}

at::Tensor pool_mlp(const at::Tensor& x, const PhiWeights& weights, int64_t block_size,
                    int64_t block_stride) {
  const at::NoTF32Guard whole_fp32;
  const at::ScalarType sums = sum_type(x);
  const int64_t dim = x.size(3), batch = x.size(0), heads = x.size(2);
  const Strips strips = strips_of(x, block_size, block_stride);
  const int64_t num_strips = strips.x.size(1), width = block_stride * dim;
  // Every strip meets each part of W1 in one product: blocks that overlap are never put together.
  const at::Tensor rows = strips.x.to(sums).transpose(2, 3).reshape({-1, width});
  const at::Tensor w1 = weights.w1.to(sums);
  const at::Tensor parts = w1.unflatten(1, {strips.per_block, width})
                               .transpose(0, 1)
                               .reshape({strips.per_block * dim, width});
  const at::Tensor products =
      at::linear(rows, parts).view({batch, num_strips, heads, strips.per_block, dim});
  const at::Tensor of_pe = at::linear(weights.pe.to(sums).reshape({1, -1}), w1);
  at::Tensor hidden = (of_pe + weights.b1.to(sums)).view({1, 1, 1, dim});
  for (int64_t strip = 0; strip < strips.per_block; ++strip) {
    hidden = hidden + products.narrow(1, strip, strips.num_blocks).select(3, strip);
  }
  return at::linear(at::silu(hidden), weights.w2.to(sums), weights.b2.to(sums));
}

}  // namespace nsa
