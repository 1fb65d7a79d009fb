#include "nsa/ops/rope/rope.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/rope/fused_rotate.h"

namespace nsa {
namespace {

at::Tensor rope_op(const at::Tensor& x, const at::Tensor& positions, double base) {
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
  return Rotation(positions, base)(x);
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

at::Tensor rope_apply(const at::Tensor& x, const at::Tensor& table) {
  std::vector<int64_t> pairs = x.sizes().vec();
  pairs.back() /= 2;
  pairs.push_back(2);
  const at::Tensor z =
      at::view_as_complex(x.to(accumulation_type(x.scalar_type())).contiguous().view(pairs));
  return at::view_as_real(z.mul(table.unsqueeze(-2))).flatten(-2).to(x.scalar_type());
}

Rotation::Rotation(at::Tensor positions, double base)
    : positions_(std::move(positions)), base_(base) {}

at::Tensor Rotation::operator()(const at::Tensor& x) {
  if (x.dim() == 3) return (*this)(x.unsqueeze(0)).squeeze(0);
  if (rotates_by_kernel(x)) return rotate_by_kernel(x, positions_, base_);
  if (!table_.defined()) table_ = rope_table(positions_, x.size(-1), base_, x.scalar_type());
  return rope_apply(x, table_);
}

at::Tensor rope(const at::Tensor& x, const at::Tensor& positions, double base) {
  static const auto op = find_operator<decltype(rope_op)>("nsa::rope");
  return op.call(x, positions, base);
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def("rope(Tensor x, Tensor positions, float base) -> Tensor", TORCH_FN(nsa::rope_op));
}
