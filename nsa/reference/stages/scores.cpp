#include "nsa/reference/stages/scores.h"

#include <algorithm>

#include "nsa/reference/stages/compress.h"

namespace nsa::reference {

int64_t overlap_weight(const Config& c, int64_t i, int64_t j) {
  const int64_t per_block = c.block_size / c.block_stride,
                per_sel = c.sel_block_size / c.block_stride;
  const int64_t begin = std::max(i, j * per_sel);
  const int64_t end = std::min(i + per_block, (j + 1) * per_sel);
  return std::max<int64_t>(0, end - begin);
}

std::vector<double> row_scores(const Config& c, const Tensor<double>& p, int64_t num_blocks) {
  const int64_t visible = p.size(1);
  std::vector<double> total(static_cast<size_t>(visible), 0.0);  // P
  for (int64_t h = 0; h < p.size(0); ++h)
    for (size_t i = 0; i < total.size(); ++i) total[i] += p(h, i);

  const int64_t per_block = c.block_size / c.block_stride,
                per_sel = c.sel_block_size / c.block_stride;
  std::vector<double> score(static_cast<size_t>(num_blocks), 0.0);
  for (int64_t j = 0; j < num_blocks; ++j) {
    // Only these i overlap block j; a NaN elsewhere must not reach it through 0 * NaN.
    const int64_t first = std::max<int64_t>(0, j * per_sel - per_block + 1);
    const int64_t last = std::min(visible, (j + 1) * per_sel) - 1;
    for (int64_t i = first; i <= last; ++i)
      score[static_cast<size_t>(j)] +=
          static_cast<double>(overlap_weight(c, i, j)) * total[static_cast<size_t>(i)];
  }
  return score;
}

Tensor<double> group_scores(const Config& c, const Tensor<double>& p_cmp) {
  require_rank("group_scores", "p_cmp", p_cmp, 4, "[B,S,Hq,N_c]");
  const int64_t B = p_cmp.size(0), S = p_cmp.size(1), G = c.group_size();
  require_shape("group_scores", "p_cmp", p_cmp, {B, S, c.num_heads, num_compressed(c, S)});
  Tensor<double> scores({B, S, c.num_kv_heads, num_sel_blocks(c, S)});
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < S; ++t)
      for (int64_t j = 0; j < c.num_kv_heads; ++j) {
        Tensor<double> visible({G, num_compressed(c, t + 1)});
        for (int64_t g = 0; g < G; ++g)
          for (int64_t i = 0; i < visible.size(1); ++i) visible(g, i) = p_cmp(b, t, j * G + g, i);
        std::ranges::copy(row_scores(c, visible, scores.size(3)), scores.row(b, t, j).begin());
      }
  return scores;
}

}  // namespace nsa::reference
