#pragma once
#include <ATen/core/Tensor.h>

#include <string>

/// When a selection computed in lower precision is accepted (docs/tolerances.md).
namespace suites {

/// Sizes the rule needs, as in the NSA configuration.
struct SelectionShape {
  int64_t group_size = 1;       ///< G, query heads per KV head
  int64_t block_size = 32;      ///< l
  int64_t block_stride = 16;    ///< d
  int64_t sel_block_size = 64;  ///< l'
  int64_t num_selected = 16;    ///< n
  int64_t num_initial = 1;
  int64_t num_local = 2;
};

struct SelectionReport {
  bool ok = false;
  int64_t rows = 0, bad_rows = 0;
  int64_t differing_rows =
      0;  ///< rows whose set differs from the oracle's order but lies inside the tie bound
  double worst_gap = 0;  ///< largest s[rejected] - s[chosen] over all rows
  std::string text;      ///< names the first bad row (b, t, KV head), what is wrong and both blocks
};

/// Tie bound per row, [B,S,Hkv] fp64: G * (l/d) * (2 * dlogit + 16 * eps) with dlogit = eps *
/// sqrt(dk) * m + t * eps64 * m, m = max |q||k| * scale over the group's heads and the visible
/// compressed keys; eps of the accumulation type. q [B,S,Hq,dk], k_cmp [B,N_c,Hkv,dk]: the stage
/// inputs the candidate used (rotated, in the input type). `positions` [S]: t of each row;
/// undefined: 0..S-1.
at::Tensor selection_tie_bound(const at::Tensor& q, const at::Tensor& k_cmp,
                               const SelectionShape& shape, const at::Tensor& positions = {});

/// Accepts `block_idx` [B,S,Hkv,n] int32 against the oracle's `scores` [B,S,Hkv,nblocks] fp64 on
/// the same stage inputs: ascending ids, -1 only at the end, exactly min(n, c+1) of them, all <= c,
/// every forced block present, and for every chosen free block a and rejected candidate b: s[a] >=
/// s[b] - bound, `bound` [B,S,Hkv]. With an all-zero bound and `exact_ties` the order is binding:
/// equal scores go to the lower index. `positions` as above.
SelectionReport accept_selection(const at::Tensor& block_idx, const at::Tensor& scores,
                                 const at::Tensor& bound, const SelectionShape& shape,
                                 bool exact_ties = false, const at::Tensor& positions = {});

}  // namespace suites
