#include "suites/conformance/stages.h"

#include <ATen/ATen.h>

#include <cmath>

#include "suites/conformance/case_inputs.h"
#include "suites/conformance/convert.h"

namespace suites {
namespace {

using at::Tensor;

/// Tokens of the sequence that a call gets, and the position of its first query.
struct Span {
  int64_t tokens, first;
};

Tensor rotate(const Candidate& candidate, const CaseConfig& config, const Tensor& x,
              int64_t first) {
  if (config.rope == RopeKind::kNone) return x;
  const auto options = at::TensorOptions().dtype(at::kLong).device(x.device());
  return candidate.rope(x, at::arange(first, first + x.size(1), options), config.rope_base);
}

/// Queries first.. of `span.tokens` tokens, each stage called with what it may see.
StageOutputs run_span(const Candidate& candidate, const CaseConfig& config, const DenseInputs& all,
                      Span span, const std::optional<Tensor>& block_idx) {
  const auto upto = [&](const Tensor& x) { return x.narrow(1, 0, span.tokens); };
  const auto queries = [&](const Tensor& x) {
    return x.narrow(1, span.first, span.tokens - span.first);
  };
  const nsa::NsaConfig nsa_config = to_nsa(config);
  const nsa::NsaInputs in = to_nsa(all);
  const Tensor q = queries(in.q);
  const Tensor t =
      at::arange(span.first, span.tokens, at::TensorOptions().dtype(at::kLong).device(q.device()));
  StageOutputs out;
  out.q_rot = rotate(candidate, config, q, span.first);
  out.k_sel_rot = rotate(candidate, config, upto(in.k_sel), 0);
  out.k_win_rot = rotate(candidate, config, upto(in.k_win), 0);
  std::tie(out.k_cmp, out.v_cmp) =
      candidate.compress(upto(in.k_cmp_src), upto(in.v_cmp_src), in.phi_k, in.phi_v, nsa_config);
  const nsa::CmpAttnResult cmp =
      candidate.cmp_attn(out.q_rot, out.k_cmp, out.v_cmp, nsa_config, span.first);
  out.o_cmp = cmp.out;
  out.lse_cmp = cmp.lse;
  out.group_probs = cmp.group_probs;
  out.scores =
      candidate.scores(cmp.group_probs, nsa_config.num_sel_blocks(span.tokens), nsa_config);
  out.block_idx = block_idx ? *block_idx : candidate.select(out.scores, t.unsqueeze(0), nsa_config);
  out.ranges = candidate.ranges(nsa::RangesVersion::kV2, out.block_idx, t.unsqueeze(0),
                                config.sel_block_size);
  std::tie(out.o_sel, out.lse_sel) =
      candidate.sel_attn(out.q_rot, out.k_sel_rot, upto(in.v_sel), out.ranges, span.first);
  std::tie(out.o_win, out.lse_win) =
      candidate.win_attn(out.q_rot, out.k_win_rot, upto(in.v_win), config.window, span.first);
  out.o = candidate.combine(out.o_cmp, out.o_sel, out.o_win,
                            nsa::gate_activate(queries(in.gate_logits), nsa_config.gate));
  return out;
}

/// The same from one call of the composed layer.
StageOutputs run_layer(const Candidate& candidate, const CaseConfig& config,
                       const DenseInputs& inputs, const std::optional<Tensor>& block_idx) {
  nsa::NsaOptions options;
  if (block_idx) options.block_idx = *block_idx;
  const nsa::NsaOutputs got = candidate.layer(to_nsa(inputs), to_nsa(config), options);
  StageOutputs out;
  out.q_rot = got.q_rot;
  out.k_sel_rot = rotate(candidate, config, inputs.k_sel, 0);
  out.k_win_rot = rotate(candidate, config, inputs.k_win, 0);
  out.k_cmp = got.k_cmp;
  out.v_cmp = got.v_cmp;
  out.scores = got.scores;
  out.block_idx = got.block_idx;
  out.ranges = got.ranges;
  out.o_cmp = got.o_cmp;
  out.o_sel = got.o_sel;
  out.o_win = got.o_win;
  out.o = got.o;
  out.lse_cmp = got.lse_cmp;
  out.lse_sel = got.lse_sel;
  out.lse_win = got.lse_win;
  return out;
}

}  // namespace

StageOutputs run_stages(const Candidate& candidate, const CaseConfig& config,
                        const DenseInputs& inputs, const std::optional<Tensor>& block_idx) {
  if (candidate.whole) return run_layer(candidate, config, inputs, block_idx);
  return run_span(candidate, config, inputs, {config.tokens, 0}, block_idx);
}

StageOutputs run_token_by_token(const Candidate& candidate, const CaseConfig& config,
                                const DenseInputs& inputs) {
  std::vector<StageOutputs> steps;
  for (int64_t t = 0; t < config.tokens; ++t)
    steps.push_back(run_span(candidate, config, inputs, {t + 1, t}, std::nullopt));
  const auto join = [&](Tensor StageOutputs::* member) {
    std::vector<Tensor> rows;
    for (const StageOutputs& step : steps) rows.push_back(step.*member);
    return at::cat(rows, 1);
  };
  StageOutputs out;
  for (auto member : {&StageOutputs::block_idx, &StageOutputs::o_cmp, &StageOutputs::o_sel,
                      &StageOutputs::o_win, &StageOutputs::o})
    out.*member = join(member);
  return out;
}

double max_logit(const StageOutputs& got) {
  const double k =
      std::max({largest_norm(got.k_cmp), largest_norm(got.k_sel_rot), largest_norm(got.k_win_rot)});
  return largest_norm(got.q_rot) * k / std::sqrt(static_cast<double>(got.q_rot.size(-1)));
}

}  // namespace suites
