#include "suites/phases/correctness/context_rows.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "nsa/layer/nsa_attention.h"
#include "suites/phases/attention_case.h"
#include "suites/phases/correctness/row_judge.h"
#include "suites/phases/phase.h"

namespace suites {
namespace {

/// Judged positions that a rank has, and where its pieces have them.
struct Places {
  std::vector<int64_t> global, local;
};

Places places_of(const CaseConfig& sizes, const ContextRows& rows) {
  Places places;
  // A rank has one token in `world`, so this many leave it about as many as asked for.
  for (const int64_t t : judged_positions(sizes, rows.count * rows.shard.world, rows.seed))
    for (int64_t slot = 0; slot < nsa::train::ContextShard::kPieces; ++slot)
      if (t >= rows.shard.begin(slot) && t < rows.shard.end(slot)) {
        places.global.push_back(t);
        places.local.push_back(t - rows.shard.begin(slot) + slot * rows.shard.piece_tokens());
      }
  return places;
}

GateKind gate_of(nsa::GateActivation gate) {
  switch (gate) {
    case nsa::GateActivation::kNone:
      return GateKind::kNone;
    case nsa::GateActivation::kSoftmax:
      return GateKind::kSoftmax;
    case nsa::GateActivation::kSigmoid:
      return GateKind::kSigmoid;
  }
  throw std::logic_error("suites::judge_context_rows: unknown gate");
}

CaseConfig sizes_of(const ContextRows& rows) {
  const nsa::NsaConfig& c = rows.config;
  if (c.phi != nsa::Phi::kMean || c.rope != nsa::RopeMode::kBeforePool ||
      c.rope_pairs != nsa::RopePairs::kInterleaved)
    throw ConfigError(
        "args.rows must be 0 for a model whose phi is not mean, or whose rope is not before_pool "
        "with interleaved pairs: the oracle judges rows of no other");
  CaseConfig sizes = attention_sizes(c, rows.whole.q.size(0), rows.whole.q.size(1));
  sizes.gate = gate_of(c.gate);
  sizes.rope_base = c.rope_base;
  return sizes;
}

DenseInputs inputs_of(const nsa::NsaInputs& x) {
  return {.q = x.q,
          .k_cmp_src = x.k_cmp_src,
          .v_cmp_src = x.v_cmp_src,
          .k_sel = x.k_sel,
          .v_sel = x.v_sel,
          .k_win = x.k_win,
          .v_win = x.v_win,
          .gate = x.gate_logits,
          .phi_k = {},
          .phi_v = {}};
}

}  // namespace

Checks judge_context_rows(const ContextRows& rows, const nsa::NsaOptions& options) {
  const at::NoGradGuard no_grad;
  const CaseConfig sizes = sizes_of(rows);
  const Places places = places_of(sizes, rows);
  const auto at = [&](const at::Tensor& x, const std::vector<int64_t>& positions) {
    return x.index_select(1, at::tensor(positions, at::kLong).to(x.device()));
  };
  CandidateRows got;
  {
    const nsa::NsaOutputs one = nsa::nsa_attention(rows.whole, rows.config, options);
    got.q_rot = at(one.q_rot, places.global);
    got.k_cmp = one.k_cmp;
  }
  got.block_idx = at(rows.here.block_idx, places.local);
  got.o_cmp = at(rows.here.o_cmp, places.local);
  got.o_sel = at(rows.here.o_sel, places.local);
  got.o_win = at(rows.here.o_win, places.local);
  got.o = at(rows.here.o, places.local);
  RowJudge judge(sizes, queries_at(inputs_of(rows.whole), places.global), places.global);
  return judge.judge(got, "divided");
}

}  // namespace suites
