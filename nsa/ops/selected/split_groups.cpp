#include "nsa/ops/selected/split_groups.h"

#include <ATen/ATen.h>

#include <vector>

#include "nsa/kernels/common/size_limits.h"

namespace nsa {
namespace {

/// x [B, N, Hkv, ...] with every KV head `copies` times, one behind the other.
at::Tensor repeated_heads(const at::Tensor& x, int64_t copies) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin() + 3, copies);
  return x.unsqueeze(3).expand(sizes).flatten(2, 3);
}

int64_t copies_of_heads(const SelAttnArgs& args) {
  return args.q.is_cuda() ? kernels::group_parts(args.q.size(2) / args.k.size(2)) : 1;
}

}  // namespace

SelAttnArgs with_split_groups(const SelAttnArgs& args) {
  const int64_t copies = copies_of_heads(args);
  if (copies == 1) return args;
  SelAttnArgs split = args;
  split.k = repeated_heads(args.k, copies);
  split.v = repeated_heads(args.v, copies);
  split.ranges = repeated_heads(args.ranges, copies);
  return split;
}

SelAttnArgs split_sizes(const SelAttnArgs& args) {
  SelAttnArgs sizes = args;
  const int64_t heads = args.k.size(2) * copies_of_heads(args);
  const auto with_heads = [&](const at::Tensor& x) {
    return x.narrow(2, 0, 1).expand({x.size(0), x.size(1), heads, x.size(3)});
  };
  if (heads > args.k.size(2)) sizes.k = with_heads(args.k), sizes.v = with_heads(args.v);
  return sizes;
}

std::string split_detail(const SelAttnArgs& given, const SelAttnArgs& split) {
  const int64_t copies = split.k.size(2) / given.k.size(2);
  return copies == 1 ? "" : ", each group in " + std::to_string(copies);
}

}  // namespace nsa
