#include "nsa/compress/pool.h"

#include <ATen/ATen.h>

#include "nsa/core/check.h"

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
  const at::ScalarType sums = sum_type(x);
  const int64_t dim = x.size(3);
  const Strips strips = strips_of(x.to(sums), block_size, block_stride);
  std::vector<at::Tensor> parts;
  for (int64_t strip = 0; strip < strips.per_block; ++strip) {
    parts.push_back(strips.x.narrow(1, strip, strips.num_blocks));
  }
  const at::Tensor blocks = at::cat(parts, 2).transpose(2, 3);  // [B, N_c, H, l, D]
  const at::Tensor flat = (blocks + weights.pe.to(sums)).reshape({-1, block_size * dim});
  const at::Tensor hidden = at::silu(at::linear(flat, weights.w1.to(sums), weights.b1.to(sums)));
  return at::linear(hidden, weights.w2.to(sums), weights.b2.to(sums))
      .reshape({x.size(0), strips.num_blocks, x.size(2), dim});
}

}  // namespace nsa
