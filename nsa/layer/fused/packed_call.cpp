#include "nsa/layer/fused/packed_call.h"

#include <ATen/ATen.h>

#include <limits>
#include <tuple>
#include <utility>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/layer/fused/fused_call.h"
#include "nsa/layer/fused/fused_tokens.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/attention/fused_interval.h"
#include "nsa/ops/gate/fused_combine.h"
#include "nsa/ops/select/positions.h"
#include "nsa/ops/select/ranges.h"
#include "nsa/ops/selected/backends.h"

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

/// Inputs of all tokens as one sequence of a batch; those that are one tensor stay so.
NsaInputs one_sequence(const NsaInputs& in) {
  std::vector<std::pair<at::Tensor, at::Tensor>> made;
  return map_tokens(in, [&](const at::Tensor& x) {
    for (const auto& [given, own] : made)
      if (given.is_same(x)) return own;
    return made.emplace_back(x, x.unsqueeze(0)).second;
  });
}

/// NaN for tokens whose offsets are broken.
at::Tensor poisoned(const at::Tensor& logits, const PackedTables& tables) {
  return (logits + tables.poison.view({1, -1, 1, 1})).to(logits.scalar_type());
}

}  // namespace

Steps packed_steps(const NsaInputs& inputs, const NsaConfig& config, const at::Tensor& block_idx,
                   const PackedKernels& kernels, bool keeps_two) {
  const NsaInputs in = one_sequence(inputs);
  const PackedTables tables = make_packed_tables(inputs, config, kernels, /*backward=*/false);
  Steps steps;
  NsaOutputs& out = steps.out;
  {
    const NvtxRange range(config.rope == RopeMode::kNone ? "nsa.compress" : "nsa.rope");
    const TokenSources sources = make_sources(in, config, /*pools=*/true, &tables);
    out.q_rot = sources.q, steps.k_sel = sources.k_sel, steps.k_win = sources.k_win;
    out.k_cmp = sources.k_cmp, out.v_cmp = sources.v_cmp;
    record_stage("compress", "fused");
  }
  {
    const NvtxRange range("nsa.cmp_attn+select");
    const bool given = block_idx.defined();
    record_stage("cmp_attn", "fused", kernels.cmp.detail);
    const FusedSelection cmp =
        fused_interval_documents(out.q_rot, out.k_cmp, out.v_cmp, compressed_mask(config),
                                 config.cmp_scale(), kernels.cmp.code, tables.cmp_tiles, &config);
    out.o_cmp = cmp.out, out.lse_cmp = cmp.lse;
    out.block_idx = cmp.block_idx, out.ranges = cmp.ranges;
    record_stage("select", given ? "given" : "fused");
    if (given) {
      const at::Tensor position = tables.position.to(at::kLong);
      const BlockSet set = block_set(block_idx.unsqueeze(0), position, config.sel_block_size);
      out.block_idx = set.block_idx, out.dropped_ids = set.outside;
      out.ranges = block_ranges(RangesVersion::kV2, out.block_idx, position, config.sel_block_size);
    }
    out.ranges = out.ranges + tables.start.view({1, -1, 1, 1, 1});  // of all tokens
  }
  {
    const NvtxRange range("nsa.sel_attn");
    const SelectedKernels chosen{kernels.sel_rows, kernels.sel_by_keys, kernels.sel};
    std::tie(out.o_sel, out.lse_sel) =
        sel_attn_fused_forward({out.q_rot, steps.k_sel, in.v_sel, out.ranges, 0, config.sel_scale(),
                                0, tables.sel_tiles(config, out.ranges.size(3))},
                               chosen);
  }
  if (config.window > 0) {
    const NvtxRange range("nsa.win_attn");
    record_stage("win_attn", "fused", kernels.win.detail);
    const FusedSelection win =
        fused_interval_documents(out.q_rot, steps.k_win, in.v_win, window_mask(config),
                                 config.win_scale(), kernels.win.code, tables.win_tiles);
    out.o_win = win.out, out.lse_win = win.lse;
  } else {
    out.o_win = at::zeros_like(out.o_sel);
    out.lse_win = at::full_like(out.lse_sel, -std::numeric_limits<double>::infinity());
  }
  const NvtxRange range("nsa.gate");
  const GatedOutput sum = gated_sum_by_kernel({{out.o_cmp, out.o_sel, out.o_win},
                                               poisoned(in.gate_logits, tables).contiguous(),
                                               config.gate,
                                               keeps_two,
                                               out.lse_cmp.contiguous()});
  out.o = sum.o, out.gates = sum.gates;
  if (keeps_two) out.o_sel.reset();
  record_stage("gate", "fused");
  return steps;
}

std::vector<at::Tensor> packed_gradients(const NsaInputs& inputs, const NsaConfig& config,
                                         Steps steps, const at::Tensor& d_o,
                                         const PackedKernels& kernels, bool branches) {
  NsaInputs in = one_sequence(inputs);
  const PackedTables tables = make_packed_tables(inputs, config, kernels, /*backward=*/true);
  in.gate_logits = poisoned(in.gate_logits, tables);
  SavedCall saved = SavedCall::of(std::move(steps), in);
  saved.packed = &tables;
  return gradients_of_saved(in, config, std::move(saved), {kernels.cmp, kernels.sel, kernels.win},
                            d_o.unsqueeze(0), /*pooled=*/true, branches);
}

#else
Steps packed_steps(const NsaInputs&, const NsaConfig&, const at::Tensor&, const PackedKernels&,
                   bool) {
  TORCH_CHECK(false, "nsa::nsa_attention: this build has no CUDA code");
}

std::vector<at::Tensor> packed_gradients(const NsaInputs&, const NsaConfig&, Steps,
                                         const at::Tensor&, const PackedKernels&, bool) {
  TORCH_CHECK(false, "nsa::nsa_attention: this build has no CUDA code");
}

#endif

}  // namespace nsa
