#pragma once
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/common/test_util.h"

/// For the tests of backends on CUDA: inputs, and a call on CUDA against fp64 on the CPU.
namespace nsa {

struct Inputs {
  at::Tensor q, k, v, ranges;
};

inline Inputs on_cuda(const Inputs& x) {
  return {x.q.to(at::kCUDA), x.k.to(at::kCUDA), x.v.to(at::kCUDA), x.ranges.to(at::kCUDA)};
}

inline Inputs draw(at::ScalarType dtype, int64_t s, int64_t group, int64_t dk, int64_t dv) {
  const auto normal = [&](int64_t heads, int64_t dim) {
    return at::randn({2, s, heads, dim}, at::kDouble).to(dtype);
  };
  return {normal(2 * group, dk), normal(2, dk), normal(2, dv),
          at::randint(-4, s + 6, {2, s, 2, 3, 2}, at::kInt)};
}

using Call = std::function<std::pair<at::Tensor, at::Tensor>(const Inputs&)>;

/// {out, lse, dq, dk, dv} in fp64 on the CPU, of a call with inputs on `device` in `dtype`.
inline std::vector<at::Tensor> run(const Inputs& in, at::ScalarType dtype, at::Device device,
                                   const Call& call, const at::Tensor& d_out) {
  const auto leaf = [&](const at::Tensor& x) {
    return x.to(device, dtype).detach().clone().requires_grad_(true);
  };
  const Inputs x{leaf(in.q), leaf(in.k), leaf(in.v), in.ranges.to(device)};
  const auto [out, lse] = call(x);
  out.backward(d_out.to(device, dtype));
  std::vector<at::Tensor> result{out.detach(), lse.detach(), x.q.grad(), x.k.grad(), x.v.grad()};
  for (at::Tensor& tensor : result) tensor = tensor.to(at::kCPU, at::kDouble);
  return result;
}

/// Largest difference, in units of the largest value; infinities must be equal.
inline double distance(const at::Tensor& have, const at::Tensor& want) {
  if (want.numel() == 0) {
    return have.sizes() == want.sizes() ? 0.0 : std::numeric_limits<double>::infinity();
  }
  const at::Tensor same = have.eq(want);
  const at::Tensor difference = (have - want).abs().masked_fill(same, 0.0);
  const double scale =
      at::where(want.isfinite(), want.abs(), at::ones_like(want)).max().item<double>();
  // Rows of one key have gradients of exactly 0, where only rounding is left: judged as they are.
  return difference.max().item<double>() / (scale > 1e-12 ? scale : 1.0);
}

/// CUDA in `dtype` against the CPU in fp64 on the same rounded inputs, and against itself.
inline void expect_agreement(const Inputs& in, at::ScalarType dtype, const Call& call,
                             const Call& reference) {
  const std::pair<at::ScalarType, double> bounds[] = {
      {at::kDouble, 1e-11}, {at::kFloat, 1e-4}, {at::kHalf, 5e-3}, {at::kBFloat16, 4e-2}};
  double bound = 0.0;
  for (const auto& [type, value] : bounds) {
    if (type == dtype) bound = value;
  }
  const at::Tensor d_out =
      at::randn({2, in.q.size(1), in.q.size(2), in.v.size(3)}, at::kDouble).to(dtype);
  const std::vector<at::Tensor> have = run(in, dtype, at::kCUDA, call, d_out);
  const std::vector<at::Tensor> again = run(in, dtype, at::kCUDA, call, d_out);
  const std::vector<at::Tensor> want = run(in, at::kDouble, at::kCPU, reference, d_out);
  for (size_t i = 0; i < have.size(); ++i) {
    EXPECT_LE(distance(have[i], want[i]), bound) << "tensor " << i << " " << dtype;
    EXPECT_TRUE(at::equal(have[i], again[i])) << "not the same bits twice: tensor " << i;
  }
}

/// Sizes the kernels are built for, at every kind of group, and some that are padded to them.
struct FusedSizes {
  int64_t group, dk, dv;
};
inline constexpr FusedSizes kFusedSizes[] = {
    {1, 64, 64},    {2, 128, 128}, {3, 64, 64},    {4, 128, 128}, {6, 192, 128}, {7, 128, 128},
    {16, 192, 128}, {16, 64, 64},  {4, 96, 96},    {2, 32, 32},   {16, 80, 80},  {5, 160, 120},
    {3, 24, 128},   {4, 256, 256}, {16, 256, 256}, {1, 200, 224}};
/// Backends that ran, by stage, and their details.
inline std::string ran(const c10::intrusive_ptr<RunRecord>& record, const std::string& stage) {
  for (const RanBackend& row : record->rows()) {
    if (row.stage == stage) return row.backend + " " + row.detail;
  }
  return "nothing";
}

inline RanBackend last_row(const c10::intrusive_ptr<RunRecord>& record) {
  return record->rows().back();
}

}  // namespace nsa
