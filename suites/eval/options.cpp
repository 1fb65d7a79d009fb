#include "suites/eval/options.h"

#include "base/options/command_line.h"
#include "base/options/refusal.h"

namespace suites::eval {
namespace {

constexpr const char* kFooter = R"(
The input is a safetensors file with the metadata key `config`, JSON: {name, kind, B, S, prefill,
cfg: {Hq, Hkv, dk, dv, l, d, lsel, n, n_initial, n_local, w, phi, rope, rope_pairs, rope_base,
gate, scale, scale_cmp, scale_sel, scale_win}}; rope_pairs is interleaved or half_split, scale the
factor of q.k (1/sqrt(dk) unless given), scale_* that of one branch, and w = 0 no window. Tensors
are [B, S, heads, D], or [T, heads, D] when `cu_seqlens` (int32) is there. What each --op reads:
  layer     q, k_cmp_src, v_cmp_src, k_sel, v_sel, k_win, v_win, gates (cfg.gate none) or
            gate_logits (softmax, sigmoid); conv_k, conv_v or phi_k.*, phi_v.*, by cfg.phi
  compress  k_cmp_src, v_cmp_src and the weights of phi
  scores    p_cmp; else q_rot or q, and k_cmp (v_cmp too gives o_cmp) or what compress reads
  select    scores, else what scores reads
  ranges    block_idx, each row in its order, else what select reads
  sel_attn  q_rot or q, k_sel, v_sel; ranges, else what ranges reads
  win_attn  q_rot or q, k_win, v_win
  gate      q, w1, b1, w2, b2
  --grad    d_o (layer, sel_attn, win_attn), d_k_cmp and d_v_cmp (compress), d_logits (gate)
q, k_sel, k_win and k_cmp_src are not rotated. A stage value in the file (scores, block_idx,
ranges) replaces the computed one, in --op layer too; block_idx (int32 or int64) is taken as a
set. Names `expected.*` are not read. The output holds q_rot, k_cmp, v_cmp, p_cmp, scores,
block_idx, ranges, o_cmp, o_sel, o_win, o, lse_*, reads and d_NAME, as far as the op makes them;
its metadata `ran` lists which backends ran, and how often.

Examples:
  nsa-eval --in case.safetensors --out out.safetensors
  nsa-eval --in case.safetensors --out grads.safetensors --dtype bf16 --device cuda --grad
  nsa-eval --in case.safetensors --out steps.safetensors --mode decode --prefill 20

Exit status: 0 written; 2 an option or the input is wrong, named by the message; 3 anything else.)";

}  // namespace

ParseEnd parse_options(int argc, char** argv, EvalOptions& options) {
  CLI::App app{"Evaluates Native Sparse Attention on the tensors of a file."};
  app.failure_message(base::plain_failure);
  app.footer(kFooter);
  base::declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ParseEnd::kHelp : ParseEnd::kBad;
  }
  return ParseEnd::kRun;
}

}  // namespace suites::eval
