#pragma once
// Helpers of the operator tests.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace nsa {

/// The text of the c10::Error a call throws, or "accepted".
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "accepted";
}

inline at::Tensor doubles(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).reshape(shape);
}

inline at::Tensor ints(const std::vector<int32_t>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kInt).reshape(shape);
}

inline void expect_near(const at::Tensor& have, const at::Tensor& want, double tolerance = 1e-14) {
  ASSERT_EQ(have.sizes(), want.sizes());
  EXPECT_TRUE((have - want).abs().le(tolerance).logical_or(have.eq(want)).all().item<bool>())
      << have << "\nwant\n"
      << want;
}

/// Central differences of the scalar sum(weight * f(inputs)) against autograd, for every input in
/// fp64. `f` may return several tensors; each has its own random weight.
inline void expect_gradients(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& f,
    std::vector<at::Tensor> inputs, double tolerance = 1e-7) {
  std::vector<at::Tensor> weights;
  const auto value = [&] {
    const std::vector<at::Tensor> outputs = f(inputs);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (weights.size() == i) weights.push_back(at::randn(outputs[i].sizes(), at::kDouble));
      sum = sum + (outputs[i] * weights[i]).sum();
    }
    return sum;
  };
  for (at::Tensor& input : inputs) input.requires_grad_(true);
  value().backward();
  constexpr double kStep = 1e-6;
  for (size_t n = 0; n < inputs.size(); ++n) {
    const at::Tensor grad = inputs[n].grad().contiguous();
    at::Tensor flat = inputs[n].detach().view(-1);  // shares the values
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double x = flat[i].item<double>();
      flat[i].fill_(x + kStep);
      const double above = value().item<double>();
      flat[i].fill_(x - kStep);
      const double below = value().item<double>();
      flat[i].fill_(x);
      const double want = (above - below) / (2 * kStep);
      const double have = grad.view(-1)[i].item<double>();
      ASSERT_LE(std::abs(have - want), tolerance * std::max(1.0, std::abs(want)))
          << "input " << n << " element " << i << ": " << have << " want " << want;
    }
  }
}

}  // namespace nsa
