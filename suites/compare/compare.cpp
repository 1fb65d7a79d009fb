#include "suites/compare/compare.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <sstream>

#ifdef __FAST_MATH__
#error "the comparator relies on NaN and infinity: do not build it with -ffast-math"
#endif

namespace suites {
namespace {

using at::Tensor;

constexpr double kOracleUlps = 64;  // sums of a few dozen products in fp64

std::vector<int64_t> coordinates(int64_t flat, at::IntArrayRef sizes) {
  std::vector<int64_t> at(sizes.size());
  for (int64_t dim = static_cast<int64_t>(sizes.size()) - 1; dim >= 0; --dim) {
    at[dim] = flat % sizes[dim];
    flat /= sizes[dim];
  }
  return at;
}

/// As [rows, row length]; a scalar is one row of one element.
Tensor as_rows(const Tensor& x) {
  const int64_t length = x.dim() == 0 ? 1 : x.size(-1);
  return x.detach().to(at::kCPU, at::kDouble).reshape({-1, length});
}

/// Scale of each row, [rows, 1], from the oracle's finite values.
Tensor row_scales(const Tensor& oracle, const Tolerance& tol, double terms) {
  const Tensor magnitude = at::where(at::isfinite(oracle), oracle.abs(), 0.0);
  const double largest = magnitude.max().item<double>();
  const double cancelled = tol.row_relative > 0 && largest < kCancelledShare * terms ? terms : 0;
  return magnitude.amax(-1, true).clamp_min(
      std::max({tol.scale_floor, tol.scale_share * largest, cancelled}));
}

/// Size of one ulp of `type` at each scale, relative to the scale; 0 where the scale is 0. Below
/// the smallest normal number an ulp stays what it is there (fp16 gets there with ordinary values).
Tensor relative_ulp(const Tensor& scale, at::ScalarType type) {
  const double smallest = type == at::kHalf ? 0x1p-14 : std::numeric_limits<float>::min();
  const Tensor power = at::pow(2.0, at::floor(at::log2(scale.clamp_min(smallest))));
  return at::where(scale > 0, power * unit_ulp(type) / scale, 0.0);
}

/// Largest row-relative error over pairs whose oracle value is finite; NaN or infinite when `x` is
/// not finite there.
double largest_error(const Tensor& x, const Tensor& oracle, const Tensor& scale) {
  const Tensor diff = at::where(at::isfinite(oracle), (x - oracle).abs(), 0.0).amax(-1, true);
  const Tensor relative = at::where((diff == 0).logical_and(scale == 0), 0.0, diff / scale);
  return relative.max().item<double>();
}

CompareReport mismatch(const std::string& text) {
  CompareReport report;
  report.err = std::numeric_limits<double>::infinity();
  report.text = text;
  return report;
}

std::string describe(const CompareReport& r) {
  std::ostringstream out;
  out.precision(9);
  out << (r.ok ? "agrees" : "MISMATCH") << ": " << r.bad << " of " << r.elements
      << " elements outside";
  if (r.non_finite) out << " (" << r.non_finite << " non-finite)";
  out << ", worst at [";
  for (size_t i = 0; i < r.worst.size(); ++i) out << (i ? "," : "") << r.worst[i];
  out << "] got " << r.actual << " oracle " << r.oracle << ", row-relative error " << r.err
      << ", allowed " << r.tol;
  if (r.plain_err > 0) out << " (plain computation " << r.plain_err << ")";
  return out.str();
}

/// Fills counts and the worst element from the mask of passes and the error in units of what is
/// allowed; returns the worst element's flat index.
int64_t summarise(CompareReport& report, const Tensor& a, const Tensor& o, const Tensor& ok,
                  const Tensor& badness, at::IntArrayRef sizes) {
  report.bad = ok.logical_not().sum().item<int64_t>();
  report.ok = report.bad == 0;
  const Tensor finite_pair = at::isfinite(a).logical_and(at::isfinite(o));
  report.non_finite = ok.logical_or(finite_pair).logical_not().sum().item<int64_t>();
  // Failures first, then by how much of the allowance is used.
  const Tensor rank = at::where(ok, badness.nan_to_num(0, 0, 0).clamp_max(1.0),
                                badness.nan_to_num(1e300, 1e300, 0) + 2.0);
  const int64_t worst = rank.flatten().argmax().item<int64_t>();
  report.worst = coordinates(worst, sizes);
  report.actual = a.flatten()[worst].item<double>();
  report.oracle = o.flatten()[worst].item<double>();
  return worst;
}

}  // namespace

CompareReport compare(const Tensor& actual, const Tensor& oracle, const Tolerance& tol,
                      const CompareContext& context) {
  std::ostringstream wrong;
  if (actual.sizes() != oracle.sizes())
    wrong << "MISMATCH: shape " << actual.sizes() << ", oracle " << oracle.sizes();
  else if (actual.scalar_type() != tol.output)
    wrong << "MISMATCH: dtype " << actual.scalar_type() << ", must be " << tol.output;
  else if (oracle.scalar_type() != at::kDouble)
    wrong << "MISMATCH: the oracle must be fp64, got " << oracle.scalar_type();
  else if (tol.plain_factor > 0 && !context.plain)
    wrong << "MISMATCH: the rule needs the plain computation and there is none";
  else if (context.plain && context.plain->sizes() != oracle.sizes())
    wrong << "MISMATCH: shape of the plain computation " << context.plain->sizes();
  if (!wrong.str().empty()) return mismatch(wrong.str());

  CompareReport report;
  report.elements = oracle.numel();
  if (report.elements == 0) {
    report.ok = true;
    report.text = "agrees: empty";
    return report;
  }
  const Tensor a = as_rows(actual), o = as_rows(oracle), scale = row_scales(o, tol, context.terms);
  if (context.plain && tol.plain_factor > 0) {
    report.plain_err = largest_error(as_rows(*context.plain), o, scale);
    if (!(report.plain_err <= std::numeric_limits<double>::max()))
      return mismatch("MISMATCH: the plain computation is not finite where the oracle is");
  }
  const double growth = std::max(1.0, context.max_logit / kTableLogit);
  const Tensor allowed =
      (relative_ulp(scale, tol.output) * tol.ulps)
          .clamp_min(std::max(tol.row_relative * growth, tol.plain_factor * report.plain_err));
  // An error of exactly one ulp is seen no more exactly than the oracle is known.
  const double oracle_error = tol.row_relative > 0 ? 0 : unit_ulp(at::kDouble) * kOracleUlps;
  // No sum is more accurate than one ulp of its terms.
  const double least = tol.row_relative > 0 ? unit_ulp(tol.output) * context.terms : 0;
  const Tensor bound = (allowed * scale).clamp_min(least) + scale * oracle_error;
  const Tensor diff = (a - o).abs();
  const Tensor same_infinity = at::isinf(o).logical_and(a == o);
  const Tensor both_nan = at::isnan(a).logical_and(at::isnan(o));
  const Tensor ok = same_infinity.logical_or(both_nan).logical_or(diff <= bound);
  const int64_t worst = summarise(report, a, o, ok, diff / bound, oracle.sizes());
  const Tensor finite_pair = at::isfinite(a).logical_and(at::isfinite(o));
  report.err = largest_error(at::where(finite_pair, a, 0.0), at::where(finite_pair, o, 0.0), scale);
  const int64_t row = worst / o.size(1);
  report.tol = (bound[row] / scale[row]).item<double>();
  report.text = describe(report);
  return report;
}

CompareReport compare_exact(const Tensor& actual, const Tensor& expected) {
  std::ostringstream wrong;
  if (actual.sizes() != expected.sizes())
    wrong << "MISMATCH: shape " << actual.sizes() << ", expected " << expected.sizes();
  else if (actual.scalar_type() != expected.scalar_type())
    wrong << "MISMATCH: dtype " << actual.scalar_type() << ", must be " << expected.scalar_type();
  if (!wrong.str().empty()) return mismatch(wrong.str());
  CompareReport report;
  report.elements = expected.numel();
  if (report.elements == 0) {
    report.ok = true;
    report.text = "agrees: empty";
    return report;
  }
  const Tensor a = as_rows(actual), e = as_rows(expected);
  const Tensor ok = (a == e).logical_or(at::isnan(a).logical_and(at::isnan(e)));
  const Tensor diff = (a - e).abs();
  summarise(report, a, e, ok, diff, expected.sizes());
  report.err = at::where(ok, 0.0, diff.nan_to_num(INFINITY, INFINITY)).max().item<double>();
  report.text = describe(report);
  return report;
}

}  // namespace suites
