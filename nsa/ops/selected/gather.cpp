// A loop over chunks of consecutive rows; each row's keys and values are gathered and padded to the
// longest row of the chunk.
#include "nsa/ops/selected/backends.h"
#include "nsa/ops/selected/padded_rows.h"

namespace nsa {
namespace {

class GatherMethod : public RowMethod {
 public:
  std::vector<RowBatch> plan(const RowProblem& problem) const override {
    const int64_t places = row_budget(problem) / (problem.k.size(1) + problem.v.size(1));
    return cut_batches(problem, rows_with_tokens(problem), [&](const BatchSize& b) {
      return b.rows <= kMaxBatchRows && b.rows * b.longest <= places;
    });
  }
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

const RowMethod& gather_method() {
  static const GatherMethod method;
  return method;
}

SelAttnResult sel_attn_gather(const SelAttnArgs& args) {
  record_backend("sel_attn", "gather", "gather", "", "", /*strict=*/false);
  return row_attention(args, gather_method());
}

}  // namespace nsa
