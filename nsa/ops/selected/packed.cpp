// Rows bucketed by length, so that a batch holds rows of nearly one length and computes little
// padding. Two variants: `workspace` gathers into buffers that all batches share and has no
// gradient; `safe` allocates every batch anew and is differentiable.
#include <algorithm>

#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/selected/backends.h"
#include "nsa/ops/selected/padded_rows.h"

namespace nsa {
namespace {

/// Rows whose lengths round up to the same multiple share a bucket.
constexpr int64_t kBucketTokens = 32;

int64_t bucket_of(int64_t length) { return (length + kBucketTokens - 1) / kBucketTokens; }

std::vector<RowBatch> bucketed(const RowProblem& problem) {
  std::vector<int64_t> order = rows_with_tokens(problem);
  const auto length = [&](int64_t row) { return problem.lengths[row]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length(a) < length(b); });
  const int64_t places = row_budget(problem) / (problem.k.size(1) + problem.v.size(1));
  return cut_batches(problem, order, [&](const BatchSize& b) {
    return b.rows <= kMaxBatchRows && b.rows * b.longest <= places &&
           bucket_of(b.shortest) == bucket_of(b.longest);
  });
}

class PackedMethod : public RowMethod {
 public:
  std::vector<RowBatch> plan(const RowProblem& problem) const override { return bucketed(problem); }
  RowOutputs forward(const RowProblem& problem, const RowBatch& batch,
                     const RowWorkspace& workspace) const override {
    return padded_forward(problem, batch, workspace);
  }
  RowGradients backward(const RowProblem& problem, const RowBatch& batch,
                        const RowUpstream& upstream) const override {
    return padded_backward(problem, batch, upstream);
  }
};

}  // namespace

SelAttnResult sel_attn_packed(const SelAttnArgs& args, bool safe, bool strict) {
  static const PackedMethod method;
  if (!safe && !needs_gradient({args.q, args.k, args.v})) {
    record_backend("sel_attn", "packed", "packed", "workspace", "", strict);
    return rows_forward(args, method, /*share=*/true);
  }
  record_backend("sel_attn", "packed", "packed", "safe",
                 safe ? "" : "the workspace variant has no gradient", strict);
  return row_attention(args, method);
}

}  // namespace nsa
