// Rows as sequences of one packed attention call over cu_seqlens. The library's flash attention
// takes them on CUDA in half precision; elsewhere reductions over segments do the same.
#include <ATen/ATen.h>

#include "nsa/ops/attention/library_attention.h"
#include "nsa/ops/selected/backends.h"
#include "nsa/ops/selected/segment_rows.h"

namespace nsa {
namespace {

class SegmentMethod : public RowMethod {
 public:
  std::vector<RowBatch> plan(const RowProblem& problem) const override {
    const int64_t per_token = problem.heads.group_size * (problem.k.size(1) + problem.v.size(1));
    const int64_t tokens = row_budget(problem) / per_token;
    return cut_batches(problem, rows_with_tokens(problem),
                       [&](const BatchSize& b) { return b.total <= tokens; });
  }
  RowOutputs forward(const RowProblem& problem, const RowBatch& batch,
                     const RowWorkspace&) const override {
    return segment_forward(problem, batch);
  }
  RowGradients backward(const RowProblem& problem, const RowBatch& batch,
                        const RowUpstream& upstream) const override {
    return segment_backward(problem, batch, upstream);
  }
};

/// Packed sequences as flash attention takes them: the G heads of a row are G queries of one head.
struct FlashCall {
  FlashCall(const RowProblem& problem, const RowBatch& batch)
      : segments(make_segments(problem, batch)), max_keys(batch.longest) {
    const int64_t rows = batch.rows.size(0), group = problem.heads.group_size;
    sequences.q = segments.q.flatten(0, 1).unsqueeze(1);
    sequences.k = segments.k.unsqueeze(1);
    sequences.v = segments.v.unsqueeze(1);
    sequences.cu_q = at::arange(rows + 1, batch.rows.options()).mul_(group).to(at::kInt);
    sequences.cu_k = at::constant_pad_nd(segments.length.cumsum(0), {1, 0}).to(at::kInt);
    sequences.max_q = group;
    sequences.max_k = batch.longest;
    sequences.scale = problem.scale;
  }

  Segments segments;
  PackedSequences sequences;
  int64_t max_keys;
};

class FlashMethod : public RowMethod {
 public:
  std::vector<RowBatch> plan(const RowProblem& problem) const override {
    // The library's backward pass keeps 128 rows of fp32 a sequence.
    constexpr int64_t kMaxRows = 4096;
    const int64_t tokens = row_budget(problem) / (problem.k.size(1) + problem.v.size(1));
    return cut_batches(problem, rows_with_tokens(problem),
                       [&](const BatchSize& b) { return b.total <= tokens && b.rows <= kMaxRows; });
  }
  RowOutputs forward(const RowProblem& problem, const RowBatch& batch,
                     const RowWorkspace&) const override {
    const FlashCall call(problem, batch);
    const auto [out, lse] = flash_packed_forward(call.sequences);
    const at::IntArrayRef rows = call.segments.q.sizes();
    return {out.reshape({rows[0], rows[1], problem.v.size(1)}), lse.reshape({rows[0], rows[1], 1})};
  }
  RowGradients backward(const RowProblem& problem, const RowBatch& batch,
                        const RowUpstream& upstream) const override {
    if (upstream.d_lse.defined()) return segment_backward(problem, batch, upstream);
    const FlashCall call(problem, batch);
    const auto flat = [](const at::Tensor& x) { return x.flatten(0, 1).unsqueeze(1); };
    const LibraryGradients g =
        flash_packed_backward(call.sequences, flat(upstream.d_out), flat(upstream.out),
                              upstream.lse.reshape({1, -1}).contiguous());
    const at::ScalarType sums = problem.heads.sums;
    return {g.q.reshape(call.segments.q.sizes()), call.segments.index, g.k.squeeze(1).to(sums),
            g.v.squeeze(1).to(sums)};
  }
  bool keeps_output() const override { return true; }
};

}  // namespace

SelAttnResult sel_attn_varlen(const SelAttnArgs& args) {
  static const SegmentMethod segments;
  static const FlashMethod flash;
  const std::string obstacle = flash_obstacle(args.q, args.k, args.v);
  record_backend("sel_attn", "varlen", "varlen", obstacle.empty() ? "flash" : "plain: " + obstacle,
                 "", /*strict=*/false);
  if (obstacle.empty()) return row_attention(args, flash);
  return row_attention(args, segments);
}

}  // namespace nsa
