#include "nsa/decode/sequential.h"

#include <ATen/ATen.h>

#include "nsa/decode/output_rows.h"
#include "nsa/decode/step/rotated_tokens.h"
#include "nsa/decode/step/step_inputs.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/select/positions.h"
#include "nsa/ops/select/scores.h"
#include "nsa/ops/select/top_n.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"

namespace nsa {
namespace {

/// Row t from tokens 0..t of `in`, which are all it is given.
DecodeOutputs last_row(const NsaInputs& in, const NsaConfig& config, const NsaOptions& options,
                       const at::Tensor& block_idx) {
  const int64_t num_tokens = in.q.size(1), t = num_tokens - 1;
  const at::Tensor positions = at::arange(num_tokens, in.q.options().dtype(at::kLong));
  const RotatedTokens rotated = rotate_tokens(in, positions, config);
  const auto last = [&](const at::Tensor& x) { return x.narrow(1, t, 1); };
  const at::Tensor here = positions.narrow(0, t, 1);
  const auto [k_cmp, v_cmp] = compress(in.k_cmp_src, in.v_cmp_src, in.phi_k, in.phi_v, config);
  DecodeOutputs out;
  out.q_rot = last(rotated.q);
  record_stage("compress", compress_backend(in.k_cmp_src, config));
  const CmpAttnResult cmp =
      cmp_attn(out.q_rot, k_cmp, v_cmp, config, t, {options.cmp, options.strict_backend});
  out.o_cmp = cmp.out;
  out.lse_cmp = cmp.lse;
  const at::Tensor scores =
      block_scores(cmp.group_probs, config.num_sel_blocks(num_tokens), config);
  if (options.keep_scores) out.scores = scores;
  if (block_idx.defined()) {
    const BlockSet set = block_set(block_idx, here, config.sel_block_size);
    out.block_idx = set.block_idx;
    out.dropped_ids = set.outside;
  } else {
    out.block_idx = select_blocks(scores, here, config);
  }
  record_stage("select", block_idx.defined() ? "given" : "plain");
  out.ranges = block_ranges(options.ranges, out.block_idx, here, config.sel_block_size);
  record_stage("ranges", to_string(options.ranges));
  std::tie(out.o_sel, out.lse_sel) =
      sel_attn(out.q_rot, rotated.k_sel, in.v_sel, out.ranges, t,
               {options.sel, options.safe_pack, options.strict_backend, config.sel_block_size},
               config.scale_sel);
  std::tie(out.o_win, out.lse_win) =
      win_attn(out.q_rot, rotated.k_win, in.v_win, config.window, t,
               {options.win, options.strict_backend}, config.scale_win);
  out.gates = gate_activate(last(in.gate_logits), config.gate);
  record_stage("gate", gate_combine_backend(out.o_cmp, out.gates));
  out.o = gate_combine(out.o_cmp, out.o_sel, out.o_win, out.gates);
  return out;
}

}  // namespace

NsaOutputs sequential_attention(const NsaInputs& inputs, const NsaConfig& config,
                                const NsaOptions& options) {
  const NvtxRange range("nsa.sequential", options.nvtx);
  const auto record = c10::make_intrusive<RunRecord>(options.sdpa_audit, current_record());
  const RunRecordScope scope(record);
  config.validate();
  check_inputs("sequential_attention", inputs, config);
  if (inputs.cu_seqlens.defined()) {
    ArgumentCheck("sequential_attention")
        .fail("cu_seqlens", "undefined (packed documents run in batched mode)", "a tensor");
  }
  if (options.block_idx.defined()) {
    check_ids_type(ArgumentCheck("sequential_attention"), options.block_idx);
  }
  const int64_t batch = inputs.q.size(0), num_tokens = inputs.q.size(1);
  if (num_tokens == 0) return nsa_attention(inputs, config, options);
  const StepInputs steps(inputs);
  OutputRows rows(batch, num_tokens);
  std::vector<int64_t> sequences;
  for (int64_t b = 0; b < batch; ++b) sequences.push_back(b);
  for (int64_t t = 0; t < num_tokens; ++t) {
    const at::Tensor block_idx =
        options.block_idx.defined() ? options.block_idx.narrow(1, t, 1) : at::Tensor();
    const auto upto_t = [&](const at::Tensor& x) { return x.narrow(1, 0, t + 1); };
    rows.add(last_row(steps.take(upto_t), config, options.effective(), block_idx), sequences,
             std::vector<int64_t>(sequences.size(), t), std::vector<int64_t>(sequences.size(), 1));
  }
  NsaOutputs out = rows.join(config.num_sel_blocks(num_tokens));
  out.record = record;
  out.ran = record->rows();
  out.sdpa_calls = record->sdpa_calls();
  std::tie(out.k_cmp, out.v_cmp) =
      compress(inputs.k_cmp_src, inputs.v_cmp_src, inputs.phi_k, inputs.phi_v, config);
  return out;
}

}  // namespace nsa
