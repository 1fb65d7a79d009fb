#include "suites/compare/selection.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "suites/compare/tolerance.h"

namespace suites {
namespace {

using at::Tensor;

/// One row of a selection, judged. `problem` is empty when the row is accepted.
struct RowVerdict {
  std::string problem;
  double gap =
      0;  ///< s[best rejected] - s[worst chosen]; > 0 only for a legal swap inside the bound
};

bool forced(int64_t block, int64_t current, const SelectionShape& shape) {
  return (block < shape.num_initial && block <= current) ||
         (block > current - shape.num_local && block <= current);
}

/// NaN ranks below every number.
double rank(double score) { return std::isnan(score) ? -INFINITY : score; }

/// Shape of the id list: ascending, padding at the end, right number, nothing beyond the current
/// block, forced present.
std::string structure_problem(const int32_t* ids, int64_t current, const SelectionShape& shape) {
  const int64_t want = std::min(shape.num_selected, current + 1);
  std::ostringstream out;
  for (int64_t i = 0; i < shape.num_selected; ++i) {
    if (i >= want && ids[i] != -1)
      out << "place " << i << " must be -1, got " << ids[i];
    else if (i < want && (ids[i] < 0 || ids[i] > current))
      out << "id " << ids[i] << " outside 0.." << current;
    else if (i > 0 && i < want && ids[i] <= ids[i - 1])
      out << "ids not ascending at place " << i;
    if (!out.str().empty()) return out.str();
  }
  for (int64_t block = 0; block <= current; ++block)
    if (forced(block, current, shape) &&
        !std::binary_search(ids, ids + want, static_cast<int32_t>(block)))
      return "forced block " + std::to_string(block) + " missing";
  return "";
}

/// t of each row, int64 on the CPU.
Tensor positions_of(const Tensor& positions, int64_t rows) {
  if (!positions.defined()) return at::arange(rows, at::kLong);
  TORCH_CHECK(positions.numel() == rows, "suites::selection: positions must have ", rows,
              " values, got ", positions.numel());
  return positions.to(at::kCPU, at::kLong).contiguous();
}

RowVerdict judge_row(const int32_t* ids, const double* scores, double bound, int64_t current,
                     const SelectionShape& shape, bool exact_ties) {
  RowVerdict verdict{structure_problem(ids, current, shape), 0};
  if (!verdict.problem.empty()) return verdict;
  const int64_t count = std::min(shape.num_selected, current + 1);
  int64_t chosen = -1,
          rejected =
              -1;  // lowest chosen free block and best rejected candidate in the binding order
  for (int64_t block = 0; block < current; ++block) {
    if (forced(block, current, shape)) continue;
    const bool in = std::binary_search(ids, ids + count, static_cast<int32_t>(block));
    int64_t& kept = in ? chosen : rejected;
    // Equal scores go to the lower index: the lowest chosen is the last of equals, the best
    // rejected the first.
    const bool replace = kept < 0 || (in ? rank(scores[block]) <= rank(scores[kept])
                                         : rank(scores[block]) > rank(scores[kept]));
    if (replace) kept = block;
  }
  if (chosen < 0 || rejected < 0) return verdict;
  const double low = rank(scores[chosen]), high = rank(scores[rejected]);
  verdict.gap = low == high ? 0 : high - low;
  const bool inside = verdict.gap <= bound && !(exact_ties && low == high && rejected < chosen);
  if (!inside) {
    std::ostringstream out;
    out.precision(12);
    out << "block " << rejected << " (score " << high << ") rejected for block " << chosen
        << " (score " << low << "), tie bound " << bound;
    verdict.problem = out.str();
  }
  return verdict;
}

}  // namespace

Tensor selection_tie_bound(const Tensor& q, const Tensor& k_cmp, const SelectionShape& shape,
                           const Tensor& positions) {
  const int64_t batch = q.size(0), tokens = q.size(1), kv_heads = k_cmp.size(2), dk = q.size(3);
  const double eps = unit_ulp(accumulation_type(q.scalar_type()));
  const Tensor qn = q.detach()
                        .to(at::kCPU, at::kDouble)
                        .norm(2, -1)
                        .view({batch, tokens, kv_heads, shape.group_size})
                        .amax(-1);
  const Tensor position = positions_of(positions, tokens).to(at::kDouble).view({1, tokens, 1});
  Tensor kn = at::zeros({batch, tokens, kv_heads}, at::kDouble);
  if (k_cmp.size(1) > 0) {
    const Tensor running =
        std::get<0>(k_cmp.detach().to(at::kCPU, at::kDouble).norm(2, -1).cummax(1));
    const Tensor visible =
        at::floor((position - (shape.block_size - 1)) / shape.block_stride).to(at::kLong);
    const Tensor last = visible.clamp(0, k_cmp.size(1) - 1).expand({batch, tokens, kv_heads});
    kn = at::where(visible >= 0, running.gather(1, last), 0.0);
  }
  const Tensor logit = qn * kn / std::sqrt(static_cast<double>(dk));
  const Tensor dlogit =
      logit * (eps * std::sqrt(static_cast<double>(dk)) + position * unit_ulp(at::kDouble));
  const double weight =
      static_cast<double>(shape.group_size * (shape.block_size / shape.block_stride));
  return (dlogit * tie_bound().logit_factor + tie_bound().softmax_eps * eps) * weight;
}

SelectionReport accept_selection(const Tensor& block_idx, const Tensor& scores, const Tensor& bound,
                                 const SelectionShape& shape, bool exact_ties,
                                 const Tensor& positions) {
  SelectionReport report;
  const int64_t batch = scores.size(0), tokens = scores.size(1), heads = scores.size(2),
                blocks = scores.size(3);
  const bool shaped =
      block_idx.sizes() == at::IntArrayRef({batch, tokens, heads, shape.num_selected});
  if (!shaped || block_idx.scalar_type() != at::kInt) {
    std::ostringstream out;
    out << "block_idx must be int32 [" << batch << "," << tokens << "," << heads << ","
        << shape.num_selected << "], got " << block_idx.scalar_type() << " " << block_idx.sizes();
    report.text = out.str();
    return report;
  }
  const Tensor ids = block_idx.to(at::kCPU).contiguous(),
               s = scores.to(at::kCPU, at::kDouble).contiguous();
  const Tensor slack = bound.to(at::kCPU, at::kDouble).contiguous();
  const Tensor place = positions_of(positions, tokens);
  report.rows = batch * tokens * heads;
  for (int64_t row = 0; row < report.rows; ++row) {
    const int64_t t = place.const_data_ptr<int64_t>()[row / heads % tokens];
    const RowVerdict verdict =
        judge_row(ids.const_data_ptr<int32_t>() + row * shape.num_selected,
                  s.const_data_ptr<double>() + row * blocks, slack.const_data_ptr<double>()[row],
                  t / shape.sel_block_size, shape, exact_ties);
    report.worst_gap = std::max(report.worst_gap, verdict.gap);
    report.differing_rows += verdict.gap > 0;
    if (verdict.problem.empty()) continue;
    if (report.bad_rows++ == 0)
      report.text = "row b=" + std::to_string(row / heads / tokens) + " t=" + std::to_string(t) +
                    " kv_head=" + std::to_string(row % heads) + ": " + verdict.problem;
  }
  report.ok = report.bad_rows == 0;
  if (report.ok)
    report.text = std::to_string(report.rows) + " rows accepted, " +
                  std::to_string(report.differing_rows) + " of them by the tie bound";
  return report;
}

}  // namespace suites
