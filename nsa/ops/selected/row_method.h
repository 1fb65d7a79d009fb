#pragma once
#include <utility>
#include <vector>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/selected/row_problem.h"

namespace nsa {

using SelAttnResult = std::pair<at::Tensor, at::Tensor>;  ///< out, lse

/// Results of one batch of n rows.
struct RowOutputs {
  at::Tensor out;  ///< [n, G, dv]
  at::Tensor lse;  ///< [n, G, 1]
};
struct RowGradients {
  at::Tensor q;      ///< [n, G, dk]
  at::Tensor index;  ///< [m] places in RowProblem::k and v; may repeat
  at::Tensor k, v;   ///< [m, D], type of sums, to be added up at `index`
};
/// What a backward pass of one batch gets.
struct RowUpstream {
  at::Tensor d_out;  ///< [n, G, dv], type of products
  at::Tensor d_lse;  ///< [n, G, 1], accumulation type; undefined: no gradient
  at::Tensor out;    ///< [n, G, dv] of the forward pass, if the method keeps it
  at::Tensor lse;    ///< [n, G, 1] of the forward pass, if the method keeps it
};

/// Buffers that the batches of one call share instead of allocating anew. Nothing may be kept of
/// them, so they serve calls without a gradient.
struct RowWorkspace {
  at::Tensor k, v;  ///< [places, D], type of products; undefined: allocate
};

/// One way to compute rows: how they are put together, and what is done with a batch. Methods have
/// no state, so that forward and backward may run at any time on any thread.
class RowMethod {
 public:
  virtual ~RowMethod() = default;
  virtual std::vector<RowBatch> plan(const RowProblem& problem) const = 0;
  virtual RowOutputs forward(const RowProblem& problem, const RowBatch& batch,
                             const RowWorkspace& workspace) const = 0;
  virtual RowGradients backward(const RowProblem& problem, const RowBatch& batch,
                                const RowUpstream& upstream) const = 0;
  /// True: backward needs out and lse of the forward pass.
  virtual bool keeps_output() const { return false; }
};

/// out and lse of all rows, without a gradient; `share` true: batches share a workspace.
SelAttnResult rows_forward(const SelAttnArgs& args, const RowMethod& method, bool share = false);

/// The same, differentiable once in q, k, v. `method` must live forever. Gradients of K and V are
/// added up in a fixed order: the same bits every time.
SelAttnResult row_attention(const SelAttnArgs& args, const RowMethod& method);

/// {d_q, d_k, d_v} of a forward pass that was computed elsewhere. d_out like the output, d_lse
/// [B, S, Hq]; either may be undefined.
std::vector<at::Tensor> rows_backward(const SelAttnArgs& args, const RowMethod& method,
                                      const at::Tensor& d_out, const at::Tensor& d_lse,
                                      const at::Tensor& out, const at::Tensor& lse);

/// The method behind `gather`, for backward passes of others.
const RowMethod& gather_method();

}  // namespace nsa
