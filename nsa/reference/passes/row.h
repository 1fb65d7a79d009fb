#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nsa/reference/branches/attention.h"
#include "nsa/reference/inputs.h"

namespace nsa::reference {

/// Where the three branches of one (b, KV head) load from: compressed blocks, then tokens.
struct RowSources {
  KeyValueSource cmp, sel, win;
};

/// What one (b, t, KV head) takes besides its sources.
struct RowQuery {
  int64_t t = 0;
  std::span<const double> q;                           ///< G * dk values, rotated
  Tensor<double> gates;                                ///< [G,3], as in Inputs::gates
  std::optional<std::vector<int32_t>> block_idx = {};  ///< given ids; none: selected here
  std::optional<std::vector<int32_t>> ranges = {};     ///< given intervals, as pairs
};

/// Every stage of one (b, t, KV head).
struct RowResult {
  Tensor<double> p_cmp;                   ///< [G, N_c(t+1)]
  std::vector<double> scores;             ///< [c+1], c = floor(t/l'); the rest of the row is 0
  std::vector<int32_t> block_idx;         ///< [n]
  std::vector<int32_t> ranges;            ///< n pairs
  Tensor<double> o_cmp, o_sel, o_win, o;  ///< [G,dv]
  std::vector<double> lse_cmp, lse_sel, lse_win;  ///< [G]
  std::array<int64_t, 3> reads{};                 ///< pairs loaded: cmp, sel, win
};

/// The forward pass of one (b, t, KV head), loading only what the row attends.
RowResult evaluate_row(const Config& config, const RowQuery& query, RowSources sources);

/// [G,3] gates of (b, t, KV head).
Tensor<double> gates_of_row(const Config& config, const Tensor<double>& gates, int64_t b, int64_t t,
                            int64_t kv_head);

/// The G * dk values of (b, t, KV head) in q [B,S,Hq,dk].
std::span<const double> queries_of_row(const Config& config, const Tensor<double>& q, int64_t b,
                                       int64_t t, int64_t kv_head);

/// Outputs for `rows` tokens a sequence of which the last is number tokens-1, zero everywhere;
/// q_rot, k_cmp and v_cmp stay undefined.
Outputs allocate_outputs(const Config& config, int64_t batch, int64_t rows, int64_t tokens);

/// Writes a row's result to [b, row] of its heads.
void store_row(const Config& config, const RowResult& result, int64_t b, int64_t row,
               int64_t kv_head, Outputs& outputs);

}  // namespace nsa::reference
