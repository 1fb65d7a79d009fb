// The attention of a decode step by the CPU kernels, on the rows of the caches as they lie.
#include <ATen/ATen.h>

#include "nsa/decode/step/active_sequences.h"
#include "nsa/decode/step/step_inputs.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/cpu/cached_attention.h"
#include "nsa/ops/gate/gate.h"

namespace nsa {
namespace {

cpu::CachedKv cached(const PagedRows& rows, int64_t sequence) {
  return {rows.kv.k, rows.kv.v,
          rows.table().const_data_ptr<int64_t>() + sequence * rows.pages_per_sequence(),
          rows.page_size()};
}

cpu::CachedKv cached(const TokenRing& ring, int64_t sequence) {
  return {ring.kv.k, ring.kv.v, nullptr, ring.num_slots(), sequence * ring.num_slots()};
}

}  // namespace

std::string LayerCache::cpu_step_obstacle(const NsaInputs& tokens,
                                          const NsaOptions& options) const {
  const NsaOptions wanted = options.effective();
  if (wanted.sel != SelBackend::kCpu || wanted.cmp != BranchBackend::kCpu ||
      wanted.win != BranchBackend::kCpu)
    return "the kernels of a step on a CPU compute all three branches or none";
  const std::string obstacle = cpu_kernel_obstacle(tokens.q);
  if (!obstacle.empty()) return obstacle;
  if (needs_gradient(tokens)) return "the kernels of a step on a CPU have no backward pass";
  if (window_.kv.k.scalar_type() != window_.kv.type) return "the cache keeps wider rows";
  if (window_.kv.type != tokens.q.scalar_type()) return "the caches and q have different types";
  if (options.block_idx.defined()) return "the kernels of a step on a CPU select by themselves";
  if (options.keep_scores) return "the kernels of a step on a CPU leave no scores";
  return "";
}

DecodeOutputs LayerCache::attend_by_cpu_kernels(const NsaInputs& tokens, const at::Tensor& q_rot,
                                                const Active& active) const {
  std::vector<cpu::CachedSequence> sequences;
  for (const int64_t id : active.ids)
    sequences.push_back({cached(compressed_, id), cached(selected_, id), cached(window_, id),
                         num_tokens(id) - 1, num_blocks(id)});
  const cpu::CachedAttention r = cpu::attend_cached(q_rot, sequences, config_);
  for (const char* stage : {"cmp_attn", "select", "ranges", "sel_attn", "win_attn"})
    record_stage(stage, "cpu", cpu_kernel_detail());
  DecodeOutputs out;
  const auto type = q_rot.scalar_type();
  out.q_rot = q_rot;
  out.o_cmp = r.cmp.out.to(type), out.o_sel = r.sel.out.to(type), out.o_win = r.win.out.to(type);
  out.lse_cmp = r.cmp.lse, out.lse_sel = r.sel.lse, out.lse_win = r.win.lse;
  out.block_idx = r.block_idx, out.ranges = r.ranges, out.reads = r.reads;
  out.gates = gate_activate(tokens.gate_logits, config_.gate);
  record_stage("gate", gate_combine_backend(out.o_cmp, out.gates));
  out.o = gate_combine(out.o_cmp, out.o_sel, out.o_win, out.gates);
  return out;
}

}  // namespace nsa
