#include "nsa/reference/passes/forward.h"

#include "nsa/reference/branches/cmp_attention.h"
#include "nsa/reference/branches/sel_attention.h"
#include "nsa/reference/branches/win_attention.h"
#include "nsa/reference/stages/gate.h"
#include "nsa/reference/stages/ranges.h"
#include "nsa/reference/stages/rope.h"
#include "nsa/reference/stages/scores.h"
#include "nsa/reference/stages/select.h"

namespace nsa::reference {
namespace {

Tensor<int64_t> stack_reads(const Tensor<int64_t>& cmp, const Tensor<int64_t>& sel,
                            const Tensor<int64_t>& win) {
  Tensor<int64_t> reads({cmp.size(0), cmp.size(1), cmp.size(2), 3});
  for (size_t i = 0; i < cmp.values().size(); ++i) {
    reads.values()[3 * i] = cmp.values()[i];
    reads.values()[3 * i + 1] = sel.values()[i];
    reads.values()[3 * i + 2] = win.values()[i];
  }
  return reads;
}

}  // namespace

Tensor<double> rotated(const Config& c, const Tensor<double>& x, const Tensor<double>& given) {
  if (given.defined()) return given;
  return c.rope == Rope::kNone ? x : rope(x, c.rope_base, c.rope_pairs);
}

Outputs forward(const Config& c, const Inputs& x, const Given& given) {
  check_inputs(c, x);
  check_given(c, x, given);
  Outputs out;
  out.q_rot = rotated(c, x.q, given.q_rot);
  const Tensor<double> k_sel = rotated(c, x.k_sel, given.k_sel_rot);
  const Tensor<double> k_win = rotated(c, x.k_win, given.k_win_rot);

  out.k_cmp = given.k_cmp.defined() ? given.k_cmp : compress_keys(c, x.k_cmp_src, x.phi_k);
  out.v_cmp = given.v_cmp.defined() ? given.v_cmp : compress_values(c, x.v_cmp_src, x.phi_v);
  Attention cmp = cmp_attention(c, out.q_rot, out.k_cmp, out.v_cmp);

  out.scores = group_scores(c, cmp.p);
  out.block_idx = given.block_idx.defined() ? given.block_idx : select(c, out.scores);
  out.ranges = given.ranges.defined() ? given.ranges : ranges(out.block_idx, c.sel_block_size);

  Attention sel = sel_attention(out.q_rot, k_sel, x.v_sel, out.ranges, c.scale_sel);
  Attention win = win_attention(c, out.q_rot, k_win, x.v_win);
  out.o = combine(c, x.gates, cmp.o, sel.o, win.o);

  out.reads = stack_reads(cmp.reads, sel.reads, win.reads);
  out.p_cmp = std::move(cmp.p);
  out.o_cmp = std::move(cmp.o), out.lse_cmp = std::move(cmp.lse);
  out.o_sel = std::move(sel.o), out.lse_sel = std::move(sel.lse);
  out.o_win = std::move(win.o), out.lse_win = std::move(win.lse);
  return out;
}

}  // namespace nsa::reference
