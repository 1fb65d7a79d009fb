#include "suites/compare/tolerance.h"

#include <c10/util/Exception.h>

#include <array>
#include <limits>

namespace suites {
namespace {

using at::ScalarType;

/// What a tensor is decides which rules apply to it.
enum class Kind {
  kValue,     // in the input type: outputs, rotated or compressed tensors
  kAcc,       // in the accumulation type: probabilities, scores, gate logits
  kLse,       // in the accumulation type, compared absolutely below 1
  kGradient,  // in the input type
};

struct Line {
  std::string_view op, tensor;
  Kind kind;
  double
      fp64;  // row_relative for fp64 inputs; other types have the plain-computation rule and 1 ulp
  std::string_view derivation;
};

// u = 2^-53 = 1.1e-16 (fp64), 6e-8 (fp32). A dot product of n terms summed in any order errs by
// about sqrt(n) u |x||y| (worst n u); kTableLogit = 16 makes that sqrt(192) * 16 u = 2.5e-14 for a
// logit, twice that for a probability. A row of o is a weighted mean of up to 4096 values, so
// max|v| / max|o| reaches about 20: 20 * 5e-14 = 1e-12.
// Types below fp64 have no figures of their own: twice the error of the plain computation, or one
// ulp of the output type, whichever is more.
constexpr std::string_view kRotation =
    "two products and a sum of rounded cos and sin: 3 u, and t * u for the angle, t <= 1e3";
constexpr std::string_view kDot =
    "q.k of two rotated vectors: dk <= 192 products, each off by 2 * t * u in its angle, t <= 1e2";
constexpr std::string_view kPooling =
    "sum of l * D <= 8192 products: sqrt(8192) u relative to the row, twice for two layers";
constexpr std::string_view kSoftmax =
    "2 * dlogit + 16 u at logits <= 16 and dk <= 192: 5e-14 relative to the row's largest";
constexpr std::string_view kMean =
    "softmax error 5e-14 times max|v| / max|o| <= 20 of a mean over 4096 values";
constexpr std::string_view kLog =
    "absolute error of lse = relative error of sum exp = dlogit + sqrt(n) u";
constexpr std::string_view kMlp =
    "two dot products of <= 192 terms: 2 * sqrt(192) u, times 10 for cancellation in the row";
constexpr std::string_view kGate =
    "three products and two sums of branch outputs, each within its own row";
constexpr std::string_view kGradientRule =
    "sum over queries of products that each err like o; rows below 1/1000 of the largest are "
    "judged by that scale";
constexpr std::string_view kDifference =
    "central difference with h = 1e-5: h^2 f'''/6 = 1e-10 and u f / h = 1e-11, with two orders for "
    "curvature";
constexpr std::string_view kFormulations =
    "two fp64 formulations with sums in different order: kMean applies to each";

constexpr auto kLines = std::to_array<Line>({
    {"rope", "q_rot", Kind::kValue, 1e-13, kRotation},
    {"rope", "dot", Kind::kAcc, 1e-12, kDot},
    {"compress", "k_cmp", Kind::kValue, 1e-13, kPooling},
    {"compress", "v_cmp", Kind::kValue, 1e-13, kPooling},
    {"compress", "d_src", Kind::kGradient, 1e-12, kGradientRule},
    {"compress", "d_weight", Kind::kGradient, 1e-12, kGradientRule},
    {"cmp_attn", "o_cmp", Kind::kValue, 1e-12, kMean},
    {"cmp_attn", "lse_cmp", Kind::kLse, 1e-13, kLog},
    {"cmp_attn", "group_probs", Kind::kAcc, 1e-13, kSoftmax},
    {"scores", "scores", Kind::kAcc, 1e-12, kSoftmax},
    {"sel_attn", "o_sel", Kind::kValue, 1e-12, kMean},
    {"sel_attn", "lse_sel", Kind::kLse, 1e-13, kLog},
    {"win_attn", "o_win", Kind::kValue, 1e-12, kMean},
    {"win_attn", "lse_win", Kind::kLse, 1e-13, kLog},
    {"attn", "d_q", Kind::kGradient, 1e-11, kGradientRule},
    {"attn", "d_k", Kind::kGradient, 1e-11, kGradientRule},
    {"attn", "d_v", Kind::kGradient, 1e-11, kGradientRule},
    {"gate", "logits", Kind::kAcc, 1e-12, kMlp},
    {"combine", "o", Kind::kValue, 1e-12, kGate},
    {"combine", "d_gate", Kind::kGradient, 1e-11, kGradientRule},
    {"nsa", "o", Kind::kValue, 1e-12, kMean},
    {"nsa", "gradient", Kind::kGradient, 1e-11, kGradientRule},
    {"nsa", "derivative", Kind::kAcc, 1e-7, kDifference},
    {"formulations", "forward", Kind::kAcc, 1e-12, kFormulations},
    {"formulations", "lse", Kind::kLse, 1e-12, kFormulations},
    {"formulations", "gradient", Kind::kGradient, 1e-12, kFormulations},
});

constexpr auto kTypes =
    std::to_array({ScalarType::Double, ScalarType::Float, ScalarType::BFloat16, ScalarType::Half});

Tolerance row_of(const Line& line, ScalarType input) {
  const bool fp64 = input == ScalarType::Double;
  const bool in_input_type = line.kind == Kind::kValue || line.kind == Kind::kGradient;
  Tolerance row;
  row.op = line.op;
  row.tensor = line.tensor;
  row.input = input;
  row.output = in_input_type ? input : accumulation_type(input);
  row.derivation = line.derivation;
  row.row_relative = fp64 ? line.fp64 : 0;
  row.plain_factor = fp64 ? 0 : 2;
  row.ulps = fp64 ? 0 : 1;
  row.scale_floor = line.kind == Kind::kLse ? 1 : 0;
  if (line.kind == Kind::kGradient) row.scale_share = fp64 ? 1e-3 : 0.25;
  return row;
}

}  // namespace

const std::vector<Tolerance>& tolerance_table() {
  static const std::vector<Tolerance> table = [] {
    std::vector<Tolerance> rows;
    for (const Line& line : kLines)
      for (ScalarType type : kTypes) rows.push_back(row_of(line, type));
    return rows;
  }();
  return table;
}

const Tolerance& tolerance(std::string_view op, std::string_view tensor, at::ScalarType input) {
  for (const Tolerance& row : tolerance_table())
    if (row.op == op && row.tensor == tensor && row.input == input) return row;
  TORCH_CHECK(false, "suites::tolerance: no row for (", op, ", ", tensor, ", ", input,
              "); add one with its derivation to suites/compare/tolerance.cpp");
}

at::ScalarType accumulation_type(at::ScalarType input) {
  return input == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

double unit_ulp(at::ScalarType type) {
  switch (type) {
    case ScalarType::Double:
      return 0x1p-52;
    case ScalarType::Float:
      return 0x1p-23;
    case ScalarType::Half:
      return 0x1p-10;
    case ScalarType::BFloat16:
      return 0x1p-7;
    default:
      TORCH_CHECK(false, "suites::unit_ulp: type must be fp64, fp32, fp16 or bf16, got ", type);
  }
}

const TieBound& tie_bound() {
  // p = exp(s) / sum exp(s): a change d of every logit moves p by at most a factor exp(2d); exp,
  // the sum and the division add a few eps each, the sums over G heads and l/d blocks a few more.
  // sum_i p_i <= 1 and weight <= l/d bound the absolute error of a score by G * (l/d) times that
  // relative error.
  static constexpr TieBound bound{
      2, 16, "softmax error 2 * dlogit + 16 eps, times G heads and weight l/d"};
  return bound;
}

}  // namespace suites
