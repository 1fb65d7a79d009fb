#include "suites/eval/operators.h"

#include "nsa/diagnostics/record_stage.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/window/win_attn.h"
#include "nsa/program/input_error.h"
#include "suites/eval/stages.h"

namespace suites::eval {
namespace {

at::Tensor kv_input(Evaluation& run, const char* name, const char* legend, int64_t D) {
  return run.in.input(name, run.layout.axes({{"Hkv", run.config.num_kv_heads}, {legend, D}}));
}

void seed_o(Evaluation& run, const char* output) {
  if (!run.options.grad) return;
  run.seeds.emplace_back(run.results.at(output),
                         run.in.upstream("d_o", run.layout.axes({{"Hq", run.config.num_heads},
                                                                 {"dv", run.config.v_head_dim}})));
}

void run_compress(Evaluation& run) {
  for (const char* name : {"k_cmp", "v_cmp"})
    if (run.in.has(name))
      throw nsa::InputError(std::string(name) +
                            ": --op compress computes this; remove it from the file");
  const Stages::Compressed out = Stages(run).compressed();
  if (!run.options.grad) return;
  const nsa::NsaConfig& c = run.config;
  run.seeds.emplace_back(out.k, run.in.upstream("d_k_cmp", run.block_axes({"dk", c.qk_head_dim})));
  run.seeds.emplace_back(out.v, run.in.upstream("d_v_cmp", run.block_axes({"dv", c.v_head_dim})));
}

void run_scores(Evaluation& run) { Stages(run).computed_scores(); }
void run_select(Evaluation& run) { Stages(run).computed_block_idx(); }
void run_ranges(Evaluation& run) { Stages(run).converted_ranges(); }

void run_sel_attn(Evaluation& run) {
  run.need({"Hq", "Hkv", "dk", "dv"});
  Stages stages(run);
  const at::Tensor ranges = stages.ranges();
  const auto made = run.results.find("q_rot");  // on the way to the ranges
  const at::Tensor q = made == run.results.end() ? stages.q_rot() : made->second;
  const at::Tensor k = stages.rotate(kv_input(run, "k_sel", "dk", run.config.qk_head_dim));
  stages.sel_attn(q, k, kv_input(run, "v_sel", "dv", run.config.v_head_dim), ranges);
  seed_o(run, "o_sel");
}

void run_win_attn(Evaluation& run) {
  run.need({"Hq", "Hkv", "dk", "dv", "w"});
  Stages stages(run);
  const at::Tensor q = stages.q_rot();
  const at::Tensor k = stages.rotate(kv_input(run, "k_win", "dk", run.config.qk_head_dim));
  stages.win_attn(q, k, kv_input(run, "v_win", "dv", run.config.v_head_dim));
  seed_o(run, "o_win");
}

void run_gate(Evaluation& run) {
  run.need({"Hq", "Hkv", "dk"});
  InputTensors& in = run.in;
  const int64_t dk = run.config.qk_head_dim;
  const at::Tensor q = in.input("q", run.layout.axes({{"Hq", run.config.num_heads}, {"dk", dk}}));
  const int64_t hidden = std::max<int64_t>(1, dk / 2);
  const nsa::GateWeights weights{in.input("w1", {{"max(1, dk/2)", hidden}, {"dk", dk}}),
                                 in.input("b1", {{"max(1, dk/2)", hidden}}),
                                 in.input("w2", {{"3", 3}, {"max(1, dk/2)", hidden}}),
                                 in.input("b2", {{"3", 3}})};
  const at::Tensor logits = nsa::gate_mlp(q, weights, run.config.num_kv_heads);
  nsa::record_stage("gate", "plain");
  run.results["logits"] = logits;
  run.results["sigmoid"] = nsa::gate_activate(logits, nsa::GateActivation::kSigmoid);
  run.results["softmax"] = nsa::gate_activate(logits, nsa::GateActivation::kSoftmax);
  if (run.options.grad)
    run.seeds.emplace_back(logits,
                           in.accumulated("d_logits", run.layout.axes({run.kv_axis(), {"3", 3}})));
}

const std::vector<Operator>& operators() {
  static const std::vector<Operator> table = {
      {"layer", {"q"}, true, run_layer},
      {"compress", {"k_cmp_src"}, true, run_compress},
      {"scores", {"p_cmp", "q_rot", "q"}, false, run_scores},
      {"select", {"scores", "p_cmp", "q_rot", "q"}, false, run_select},
      {"ranges", {"block_idx", "scores", "p_cmp", "q_rot", "q"}, false, run_ranges},
      {"sel_attn", {"q_rot", "q"}, true, run_sel_attn},
      {"win_attn", {"q_rot", "q"}, true, run_win_attn},
      {"gate", {"q"}, true, run_gate},
  };
  return table;
}

std::string operator_of_kind(const std::string& kind) {
  const std::map<std::string, std::string> kinds = {
      {"", "layer"},      {"forward", "layer"}, {"varlen", "layer"}, {"decode", "layer"},
      {"topn", "select"}, {"ranges", "ranges"}, {"gates", "gate"}};
  const auto found = kinds.find(kind);
  if (found == kinds.end())
    throw nsa::InputError(
        "config: kind must be forward, varlen, decode, topn, ranges or gates, got '" + kind +
        "'; correct it or give --op");
  return found->second;
}

}  // namespace

const Operator& find_operator(const std::string& name, const std::string& kind) {
  const std::string wanted = name.empty() ? operator_of_kind(kind) : name;
  for (const Operator& op : operators())
    if (op.name == wanted) return op;
  throw nsa::InputError("--op '" + wanted + "': no such operator");
}

}  // namespace suites::eval
