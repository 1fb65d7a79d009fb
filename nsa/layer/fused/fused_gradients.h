#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <utility>
#include <vector>

#include "nsa/backend/kernel_choice.h"
#include "nsa/config/config.h"
#include "nsa/layer/batched.h"
#include "nsa/layer/fused/packed_tables.h"
#include "nsa/ops/attention/key_mask.h"
#include "nsa/ops/selected/row_method.h"

/// Gradients of the branches of a call that is one node of the graph (fused_call), in builds with
/// CUDA code.
namespace nsa {

/// What a backward pass reads: tensors as the kernels take them, and what the forward pass left.
struct SavedCall {
  at::Tensor q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win, logits, ranges;
  std::array<at::Tensor, 3> lse;  ///< cmp, sel, win
  /// Likewise, or as GatedSum::keeps_two has them; undefined once nothing reads them any more.
  std::array<at::Tensor, 3> out;
  const PackedTables* packed = nullptr;  ///< of packed documents as one sequence
  bool keeps_two = false;
  bool one_key = false;  ///< k_win and v_win are k_sel and v_sel, whose gradients may be one

  /// All but `out`.
  std::vector<at::Tensor> list() const {
    return {q, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win, logits, ranges, lse[0], lse[1], lse[2]};
  }
  static SavedCall of(Steps steps, const NsaInputs& in) {
    const bool two = steps.keeps_two();
    NsaOutputs& out = steps.out;
    return {out.q_rot,
            out.k_cmp,
            out.v_cmp,
            steps.k_sel,
            in.v_sel,
            steps.k_win,
            in.v_win,
            in.gate_logits.contiguous(),
            out.ranges,
            {out.lse_cmp, out.lse_sel, out.lse_win},
            {std::move(out.o_cmp), two ? out.o : std::move(out.o_sel), std::move(out.o_win)},
            nullptr,
            two};
  }
  static SavedCall from(const std::vector<at::Tensor>& x, std::array<at::Tensor, 3> out,
                        bool keeps_two) {
    return {x[0],           x[1],    x[2],     x[3], x[4],
            x[5],           x[6],    x[7],     x[8], {x[9], x[10], x[11]},
            std::move(out), nullptr, keeps_two};
  }
  SelAttnArgs selected(const NsaConfig& config) const {
    if (packed != nullptr)
      return {q,     k_sel,
              v_sel, ranges,
              0,     config.sel_scale(),
              0,     packed->sel_tiles(config, ranges.size(3))};
    return {q, k_sel, v_sel, ranges, 0, config.sel_scale(), config.sel_block_size};
  }
};

/// The kernels of the branches of a call; all run.
struct BranchKernels {
  KernelChoice cmp, sel, win;
};

/// Gradients of what the branches read; undefined: none.
struct BranchGradients {
  std::vector<at::Tensor> q;  ///< terms, to be added up
  at::Tensor q_out;           ///< their sum from token `q_joined` on; or undefined
  int64_t q_joined = 0;
  at::Tensor k_cmp, v_cmp, k_sel, v_sel, logits;
  at::Tensor k_win, v_win;  ///< undefined, too, where they are added to those of k_sel and v_sel
};

/// The first token whose gradients of q are joined by the selected branch; S: none.
int64_t first_joined(const SavedCall& saved, const NsaConfig& config, const BranchKernels& kernels);

/// Gradients of a loss through o alone, from d_o [B, S, Hq, dv]. `branches` false: of the logits
/// only. Where tokens are joined, their gradient of q goes to q_out [B, S, Hq, dk], heads side by
/// side, or to a term where that is undefined. Lets go of `saved.out` as soon as gates and row
/// statistics are made of it.
BranchGradients gradients_by_kernels(SavedCall& saved, const NsaConfig& config,
                                     const BranchKernels& kernels, const at::Tensor& d_o,
                                     bool branches, const at::Tensor& q_out);

/// Gradients of a loss through any outputs of the branches, these computed once more as operators.
/// `grads`: of o, o_cmp, o_sel, o_win, lse_cmp, lse_sel, lse_win, gates, undefined where there is
/// none; what follows is not looked at.
BranchGradients gradients_by_operators(const SavedCall& saved, const NsaConfig& config,
                                       const std::vector<at::Tensor>& grads);

}  // namespace nsa
