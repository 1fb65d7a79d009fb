#include "nsa/api/attention_call.h"
#include "nsa/api/check_attention.h"
#include "nsa/debug.h"
#include "nsa/layer/batched.h"

namespace nsa {
namespace {

std::string lines_of(const std::vector<RanBackend>& ran) {
  std::string text;
  for (const RanBackend& one : ran)
    text += one.stage + ": " + one.backend + (one.detail.empty() ? "" : ", " + one.detail) +
            (one.reason.empty() ? "" : " (" + one.reason + ")") + "\n";
  return text;
}

NsaOutputs outputs_of(const AttentionCall& call, bool with_scores) {
  NsaOptions options = whole_call_options(call.backend, call.strict, call.q());
  options.block_idx = call.block_idx;
  options.keep_scores = with_scores;
  const NsaInputs in = layer_inputs(call);
  if (!call.compressed()) return nsa_attention(in, call.config, options);
  check_block_idx(in, call.config, options);
  const auto record = c10::make_intrusive<RunRecord>(/*audit=*/false, current_record());
  const RunRecordScope scope(record);
  NsaOutputs out = compose_attention(in, call.config, options, /*compressed=*/true).out;
  out.ran = record->rows();
  return out;
}

}  // namespace

Intermediates attention_intermediates(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& gates, const Config& config,
                                      const Options& options, const BranchTensors& own,
                                      const at::Tensor& cu_seqlens, bool with_scores) {
  AttentionCall call;
  call.tensors = {q, k, v, gates, own.k_cmp, own.v_cmp, own.k_sel, own.v_sel, own.k_win, own.v_win};
  call.block_idx = options.block_idx;
  call.cu_seqlens = cu_seqlens;
  call.config = config;
  call.backend = options.backend;
  call.strict = options.strict;
  call.take_tensor_sizes();
  check_attention(call);
  const NsaOutputs out = outputs_of(call, with_scores);
  return {out.o,       out.o_cmp,     out.o_sel,  out.o_win, out.lse_cmp,
          out.lse_sel, out.lse_win,   out.q_rot,  out.k_cmp, out.v_cmp,
          out.scores,  out.block_idx, out.ranges, out.gates, lines_of(out.ran)};
}

}  // namespace nsa
