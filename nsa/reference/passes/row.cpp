#include "nsa/reference/passes/row.h"

#include <algorithm>

#include "nsa/reference/branches/cmp_attention.h"
#include "nsa/reference/branches/sel_attention.h"
#include "nsa/reference/branches/win_attention.h"
#include "nsa/reference/stages/gate.h"
#include "nsa/reference/stages/ranges.h"
#include "nsa/reference/stages/scores.h"
#include "nsa/reference/stages/select.h"

namespace nsa::reference {

RowResult evaluate_row(const Config& c, const RowQuery& query, RowSources sources) {
  const int64_t t = query.t, G = c.group_size(), dv = c.v_head_dim;
  RowResult row;
  RowAttention cmp = attend(query.q, G, dv, visible_blocks(c, t), sources.cmp, c.scale_cmp);
  row.scores = row_scores(c, cmp.p, t / c.sel_block_size + 1);
  row.block_idx = query.block_idx ? *query.block_idx : select_row(c, row.scores, t);
  row.ranges = query.ranges ? *query.ranges : ranges_row(row.block_idx, c.sel_block_size, t);
  RowAttention sel =
      attend(query.q, G, dv, union_of_ranges(row.ranges, t), sources.sel, c.scale_sel);
  RowAttention win = attend(query.q, G, dv, window_keys(c, t), sources.win, c.scale_win);

  row.o = Tensor<double>({G, dv});
  for (int64_t g = 0; g < G; ++g)
    combine_head(c.gate, query.gates.row(g), cmp.o.row(g), sel.o.row(g), win.o.row(g),
                 row.o.row(g));
  row.reads = {sources.cmp.reads(), sources.sel.reads(), sources.win.reads()};
  row.p_cmp = std::move(cmp.p);
  row.o_cmp = std::move(cmp.o), row.lse_cmp = std::move(cmp.lse);
  row.o_sel = std::move(sel.o), row.lse_sel = std::move(sel.lse);
  row.o_win = std::move(win.o), row.lse_win = std::move(win.lse);
  return row;
}

Tensor<double> gates_of_row(const Config& c, const Tensor<double>& gates, int64_t b, int64_t t,
                            int64_t kv_head) {
  Tensor<double> row({c.group_size(), 3});
  for (int64_t g = 0; g < c.group_size(); ++g) {
    const int64_t head = gate_of_head(c, gates.size(2), kv_head * c.group_size() + g);
    std::ranges::copy(gates.row(b, t, head), row.row(g).begin());
  }
  return row;
}

std::span<const double> queries_of_row(const Config& c, const Tensor<double>& q, int64_t b,
                                       int64_t t, int64_t kv_head) {
  const auto values = static_cast<size_t>(c.group_size() * c.qk_head_dim);
  return q.row(b, t).subspan(static_cast<size_t>(kv_head) * values, values);
}

Outputs allocate_outputs(const Config& c, int64_t B, int64_t rows, int64_t tokens) {
  Outputs out;
  out.p_cmp = Tensor<double>({B, rows, c.num_heads, num_compressed(c, tokens)});
  out.scores = Tensor<double>({B, rows, c.num_kv_heads, num_sel_blocks(c, tokens)});
  out.block_idx = Tensor<int32_t>({B, rows, c.num_kv_heads, c.top_n}, -1);
  out.ranges = Tensor<int32_t>({B, rows, c.num_kv_heads, c.top_n, 2});
  for (const auto o : {&Outputs::o_cmp, &Outputs::o_sel, &Outputs::o_win, &Outputs::o})
    out.*o = Tensor<double>({B, rows, c.num_heads, c.v_head_dim});
  for (const auto lse : {&Outputs::lse_cmp, &Outputs::lse_sel, &Outputs::lse_win})
    out.*lse = Tensor<double>({B, rows, c.num_heads});
  out.reads = Tensor<int64_t>({B, rows, c.num_kv_heads, 3});
  return out;
}

void store_row(const Config& c, const RowResult& result, int64_t b, int64_t row, int64_t kv_head,
               Outputs& out) {
  std::ranges::copy(result.scores, out.scores.row(b, row, kv_head).begin());
  std::ranges::copy(result.block_idx, out.block_idx.row(b, row, kv_head).begin());
  std::ranges::copy(result.ranges, out.ranges.row(b, row, kv_head).begin());
  std::ranges::copy(result.reads, out.reads.row(b, row, kv_head).begin());
  for (int64_t g = 0; g < c.group_size(); ++g) {
    const int64_t h = kv_head * c.group_size() + g;
    std::ranges::copy(result.p_cmp.row(g), out.p_cmp.row(b, row, h).begin());
    std::ranges::copy(result.o_cmp.row(g), out.o_cmp.row(b, row, h).begin());
    std::ranges::copy(result.o_sel.row(g), out.o_sel.row(b, row, h).begin());
    std::ranges::copy(result.o_win.row(g), out.o_win.row(b, row, h).begin());
    std::ranges::copy(result.o.row(g), out.o.row(b, row, h).begin());
    out.lse_cmp(b, row, h) = result.lse_cmp[static_cast<size_t>(g)];
    out.lse_sel(b, row, h) = result.lse_sel[static_cast<size_t>(g)];
    out.lse_win(b, row, h) = result.lse_win[static_cast<size_t>(g)];
  }
}

}  // namespace nsa::reference
