#include "nsa/ops/rope/rope.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/rope/fused_rotate.h"

namespace nsa {
namespace {

at::Tensor rope_op(const at::Tensor& x, const at::Tensor& positions, double base,
                   c10::string_view pairs) {
  const ArgumentCheck check("rope");
  check.defined("x", x);
  check.floating("x", x);
  if (x.dim() < 3) {
    check.fail("x", "of rank 3 or more [..., S, H, D]", "rank " + std::to_string(x.dim()));
  }
  if (x.size(-1) % 2 != 0) check.fail("D", "even", std::to_string(x.size(-1)));
  check.dtype("positions", positions, at::kLong);
  check.same_device("positions", positions, "x", x);
  if (positions.dim() == 2) {
    check.sizes("positions", positions, {x.size(0), x.size(-3)}, "[B, S]");
  } else {
    check.sizes("positions", positions, {x.size(-3)}, "[S]");
  }
  if (!(base > 0.0 && std::isfinite(base))) {
    check.fail("base", "positive and finite", std::to_string(base));
  }
  return Rotation(positions, base, parse_rope_pairs(std::string(pairs)))(x);
}

}  // namespace

at::Tensor rope_table(const at::Tensor& positions, int64_t dim, double base, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const at::Tensor exponent =
      at::arange(0, dim, 2, positions.options().dtype(at::kDouble)).mul_(-1.0 / dim);
  const at::Tensor angle =
      positions.to(at::kDouble).unsqueeze(-1).mul(at::pow(at::Scalar(base), exponent));
  const at::ScalarType accumulation = accumulation_type(dtype);
  return at::complex(angle.cos().to(accumulation), angle.sin().to(accumulation));
}

at::Tensor rope_apply(const at::Tensor& x, const at::Tensor& table, RopePairs pairs) {
  const bool halves = pairs == RopePairs::kHalfSplit;
  const int64_t half = x.size(-1) / 2;
  const at::Tensor wide = x.to(accumulation_type(x.scalar_type()));
  // [.., D/2, 2]: a pair side by side
  const at::Tensor paired =
      halves ? wide.unflatten(-1, {2, half}).transpose(-1, -2) : wide.unflatten(-1, {half, 2});
  const at::Tensor z = at::view_as_complex(paired.contiguous());
  const at::Tensor turned = at::view_as_real(z.mul(table.unsqueeze(-2)));
  return (halves ? turned.transpose(-1, -2) : turned).flatten(-2).to(x.scalar_type());
}

Rotation::Rotation(at::Tensor positions, double base, RopePairs pairs)
    : positions_(std::move(positions)), base_(base), pairs_(pairs) {}

at::Tensor Rotation::operator()(const at::Tensor& x) {
  if (x.dim() == 3) return (*this)(x.unsqueeze(0)).squeeze(0);
  if (pairs_ == RopePairs::kInterleaved && rotates_by_kernel(x))
    return rotate_by_kernel(x, positions_, base_);
  if (!table_.defined()) table_ = rope_table(positions_, x.size(-1), base_, x.scalar_type());
  return rope_apply(x, table_, pairs_);
}

at::Tensor rope(const at::Tensor& x, const at::Tensor& positions, double base, RopePairs pairs) {
  static const auto op = find_operator<decltype(rope_op)>("nsa::rope");
  return op.call(x, positions, base, to_string(pairs));
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def("rope(Tensor x, Tensor positions, float base, str pairs='interleaved') -> Tensor",
        TORCH_FN(nsa::rope_op));
}
