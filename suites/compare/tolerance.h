#pragma once
#include <c10/core/ScalarType.h>

#include <string_view>
#include <vector>

/// The one table of tolerances. No other file of the project holds a tolerance; each row carries
/// its derivation.
namespace suites {

/// How far a tensor may be from the fp64 oracle. Errors are row-relative: |a - o| / scale, where a
/// row is the last dimension and scale = max(max |o| of the row, `scale_floor`, `scale_share` * max
/// |o| of the tensor).
struct Tolerance {
  std::string_view op, tensor;
  at::ScalarType input = at::ScalarType::Undefined;   ///< dtype of the op's inputs
  at::ScalarType output = at::ScalarType::Undefined;  ///< dtype the tensor must have
  double row_relative =
      0;  ///< allowed error at logits up to kTableLogit; 0: only the two rules below
  double plain_factor =
      0;            ///< allowed error = this times the error of the plain low-precision computation
  double ulps = 0;  ///< allowed error in ulps of `output` at the row's scale
  double scale_floor = 0;       ///< smallest scale of a row
  double scale_share = 0;       ///< smallest scale of a row as a share of the tensor's largest |o|
  std::string_view derivation;  ///< why the figures are what they are
};

/// In fp64 a gradient whose largest value is below this share of its terms has cancelled: its terms
/// are its scale.
inline constexpr double kCancelledShare = 1e-3;

/// Largest max |q||k| * scale for which `row_relative` was derived; above it the allowance grows in
/// proportion, because an error of a logit is proportional to |q||k| and the error of a softmax to
/// that of its logits.
inline constexpr double kTableLogit = 16;

/// Below fp64 both sides of the rule are samples: the largest error of the candidate and of the
/// plain computation, each often set by a single row. An excess of at most this factor counts when
/// a second draw of the same configuration exceeds too, a larger one at once. Of about 23 000
/// comparisons (CPU, seeds 1 to 8) 14 exceeded on the first draw, by 1.8 at most, all with fp32
/// inputs, where the plain computation is as accurate as the candidate.
inline constexpr double kDoubtfulExcess = 2;

/// The row for (op, tensor, dtype of the inputs).
/// Throws c10::Error naming the key when the table has no such row.
const Tolerance& tolerance(std::string_view op, std::string_view tensor, at::ScalarType input);

/// Every row, in table order.
const std::vector<Tolerance>& tolerance_table();

/// fp64 for fp64, else fp32: the type of accumulation and softmax.
at::ScalarType accumulation_type(at::ScalarType input);

/// Distance between 1 and the next number of a floating type (bf16: 2^-7).
double unit_ulp(at::ScalarType type);

/// Bounds of docs/tolerances.md, Ties of the selection: how much two scores may differ before their
/// order is binding.
struct TieBound {
  double logit_factor;  ///< 2: a softmax changes by at most 2 * dlogit, numerator and denominator
  double softmax_eps;   ///< 16: exp, sum, division and the sums of Eqs. 9 and 10, in units of eps
  std::string_view derivation;
};
const TieBound& tie_bound();

}  // namespace suites
