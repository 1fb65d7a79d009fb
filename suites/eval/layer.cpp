// --op layer: the whole attention layer.
#include <ATen/ATen.h>

#include "nsa/decode/modes.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/program/input_error.h"
#include "suites/eval/operators.h"
#include "suites/eval/stages.h"

namespace suites::eval {
namespace {

at::Tensor gate_input(Evaluation& run) {
  const bool activated = run.config.gate == nsa::GateActivation::kNone;
  const std::string name = activated ? "gates" : "gate_logits";
  const std::string other = activated ? "gate_logits" : "gates";
  if (!run.in.has(name) && run.in.has(other))
    throw nsa::InputError(name + ": cfg.gate = " + to_string(run.config.gate) +
                          " takes this tensor, and the input file has '" + other +
                          "'; set cfg.gate to " +
                          (activated ? "softmax or sigmoid" : "none for activated gates"));
  const int64_t heads = run.in.shape(name).size() < 2 ? 0 : run.in.shape(name).end()[-2];
  const bool shared = heads == run.config.num_kv_heads;
  return run.in.input(
      name, run.layout.axes(
                {{shared ? "Hkv" : "Hq or Hkv", shared ? heads : run.config.num_heads}, {"3", 3}}));
}

nsa::NsaInputs layer_inputs(Evaluation& run) {
  const nsa::NsaConfig& c = run.config;
  const auto take = [&](const char* name, int64_t heads, const char* legend, int64_t D) {
    return run.in.input(
        name, run.layout.axes({{heads == c.num_heads ? "Hq" : "Hkv", heads}, {legend, D}}));
  };
  nsa::NsaInputs x;
  x.q = take("q", c.num_heads, "dk", c.qk_head_dim);
  x.k_cmp_src = take("k_cmp_src", c.num_kv_heads, "dk", c.qk_head_dim);
  x.v_cmp_src = take("v_cmp_src", c.num_kv_heads, "dv", c.v_head_dim);
  x.k_sel = take("k_sel", c.num_kv_heads, "dk", c.qk_head_dim);
  x.v_sel = take("v_sel", c.num_kv_heads, "dv", c.v_head_dim);
  x.k_win = take("k_win", c.num_kv_heads, "dk", c.qk_head_dim);
  x.v_win = take("v_win", c.num_kv_heads, "dv", c.v_head_dim);
  x.gate_logits = gate_input(run);
  x.phi_k = phi_weights(run, "k", c.qk_head_dim);
  x.phi_v = phi_weights(run, "v", c.v_head_dim);
  if (run.layout.packed()) x.cu_seqlens = run.in.indices("cu_seqlens", {{"docs + 1", -1}});
  return x;
}

/// Tokens of each sequence before its first single step: --prefill, else the file's, else none.
std::vector<int64_t> prefill_of(const Evaluation& run) {
  const bool asked = !run.options.prefill.empty();
  std::vector<int64_t> lengths = asked ? run.options.prefill : run.given.prefill;
  if (lengths.empty()) lengths = {0};
  return prefill_lengths(lengths, run.layout.batch, run.layout.tokens,
                         asked ? "--prefill" : "config: prefill");
}

/// The layer makes these itself; to ignore them would compare something else.
void refuse_stage_values(Evaluation& run) {
  for (const char* name : {"q_rot", "k_cmp", "v_cmp", "p_cmp"})
    if (run.in.has(name))
      throw nsa::InputError(std::string(name) +
                            ": --op layer computes this and does not take it from the file; remove "
                            "it, or evaluate a stage that reads it (nsa-eval --help)");
}

void check_mode(Evaluation& run) {
  if (run.mode == "batched") return;
  if (run.layout.packed())
    throw nsa::InputError("--mode " + run.mode +
                          ": packed documents (cu_seqlens) run in batched mode only");
  if (run.in.has("ranges"))
    throw nsa::InputError("ranges: --mode " + run.mode +
                          " makes its own; give block_idx, or use --mode batched");
}

void keep_outputs(Evaluation& run, const nsa::NsaOutputs& out) {
  run.results = {{"q_rot", out.q_rot},         {"k_cmp", out.k_cmp},
                 {"v_cmp", out.v_cmp},         {"scores", out.scores},
                 {"block_idx", out.block_idx}, {"ranges", out.ranges},
                 {"o_cmp", out.o_cmp},         {"o_sel", out.o_sel},
                 {"o_win", out.o_win},         {"o", out.o},
                 {"lse_cmp", out.lse_cmp},     {"lse_sel", out.lse_sel},
                 {"lse_win", out.lse_win}};
  if (out.cu_cmp.defined()) run.results["cu_cmp"] = out.cu_cmp;
  if (out.dropped_ids.defined()) run.dropped_ids = out.dropped_ids.item<int64_t>();
}

/// The selected branch and what follows it, once more, on the ranges of the file.
void use_given_ranges(Evaluation& run, const nsa::NsaInputs& x, const nsa::NsaOutputs& out,
                      const at::Tensor& ranges) {
  nsa::record_stage("ranges", "given");
  Stages stages(run);
  stages.sel_attn(out.q_rot, stages.rotate(x.k_sel), x.v_sel, ranges);
  run.results["ranges"] = ranges;
  run.results["o"] = nsa::gate_combine(out.o_cmp, run.results["o_sel"], out.o_win, out.gates);
}

}  // namespace

void run_layer(Evaluation& run) {
  run.need({"Hq", "Hkv", "dk", "dv", "l", "d", "lsel", "n", "n_initial", "n_local", "w"});
  check_mode(run);
  refuse_stage_values(run);
  const nsa::NsaInputs x = layer_inputs(run);
  Stages stages(run);
  nsa::NsaOptions options = run.backends;
  const at::Tensor ranges = stages.given_ranges();
  options.block_idx = stages.given_block_idx();
  const nsa::Mode mode = nsa::parse_mode(run.mode);
  if (mode == nsa::Mode::kDecode) run.prefill = prefill_of(run);
  const nsa::DecodeOutputs out = nsa::run_attention(mode, x, run.config, options, run.prefill);
  keep_outputs(run, out);
  if (out.reads.defined()) run.results["reads"] = out.reads;
  if (ranges.defined()) use_given_ranges(run, x, out, ranges);
  if (run.wants_p_cmp()) run.results["p_cmp"] = stages.p_cmp(out.q_rot, out.k_cmp);
  if (run.options.grad)
    run.seeds.emplace_back(
        run.results["o"], run.in.upstream("d_o", run.layout.axes({{"Hq", run.config.num_heads},
                                                                  {"dv", run.config.v_head_dim}})));
}

}  // namespace suites::eval
