#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "suites/compare/tolerance.h"

namespace suites {

/// What a comparison found. `ok` is true only when every element passed; every other field explains
/// it.
struct CompareReport {
  bool ok = false;
  int64_t elements = 0;
  int64_t bad = 0;  ///< elements that did not pass
  int64_t non_finite =
      0;           ///< bad elements where exactly one side is finite, or the infinities differ
  double err = 0;  ///< largest row-relative error over finite pairs
  double tol = 0;  ///< allowed row-relative error in the worst element's row
  double plain_err = 0;  ///< largest row-relative error of the plain computation; 0 without one
  std::vector<int64_t> worst;     ///< coordinates of the worst element
  double actual = 0, oracle = 0;  ///< its values
  std::string text;               ///< one sentence with all of the above
};

/// Facts about a case that widen or inform a comparison.
struct CompareContext {
  /// Same tensor from the plain low-precision computation.
  std::optional<at::Tensor> plain = std::nullopt;
  /// fp64 only: max |q||k| * scale of the case; above kTableLogit the allowance grows in
  /// proportion.
  double max_logit = 0;
  /// fp64 only: size of the terms whose sum the tensor is. Gradients of keys can cancel to almost 0
  /// (a row with one key); then the terms are the scale.
  double terms = 0;
};

/// Judges `actual` against the fp64 `oracle` under a row of the tolerance table
/// (docs/tolerances.md). An element passes iff both are the same infinity, or both are NaN, or |a
/// - o| <= allowed row-relative error * scale of its row, where allowed = max(row_relative,
/// plain_factor * error of `plain`, ulps of the output type at the scale). Shapes must be equal and
/// `actual` must have the row's output type. An empty tensor passes when shapes agree. A plain
/// computation that is required but missing, or not finite where the oracle is, fails the
/// comparison.
CompareReport compare(const at::Tensor& actual, const at::Tensor& oracle,
                      const Tolerance& tolerance, const CompareContext& context = {});

/// Bit-for-bit equality of values, shape and dtype (indices, ranges, exact-data cases). NaN equals
/// NaN, 0 equals -0.
CompareReport compare_exact(const at::Tensor& actual, const at::Tensor& expected);

}  // namespace suites
