#include "nsa/reference/stages/ranges.h"

#include <algorithm>

namespace nsa::reference {

std::vector<int32_t> ranges_row(std::span<const int32_t> ids, int64_t sel_block_size, int64_t t) {
  std::vector<int32_t> out;
  int64_t last_kept = -1;
  for (const int64_t j : ids) {
    if (!(j >= 0 && j * sel_block_size <= t && j > last_kept)) continue;
    const auto end = static_cast<int32_t>(std::min((j + 1) * sel_block_size, t + 1));
    if (!out.empty() && j == last_kept + 1) {
      out.back() = end;
    } else {
      out.push_back(static_cast<int32_t>(j * sel_block_size));
      out.push_back(end);
    }
    last_kept = j;
  }
  out.resize(2 * ids.size(), 0);
  return out;
}

Tensor<int32_t> ranges(const Tensor<int32_t>& block_idx, int64_t sel_block_size) {
  require_rank("ranges", "block_idx", block_idx, 4, "[B,S,Hkv,K]");
  if (sel_block_size < 1)
    reject("ranges", "sel_block_size", "at least 1", std::to_string(sel_block_size));
  const Shape& s = block_idx.shape();
  Tensor<int32_t> out({s[0], s[1], s[2], s[3], 2});
  for (int64_t b = 0; b < s[0]; ++b)
    for (int64_t t = 0; t < s[1]; ++t)
      for (int64_t j = 0; j < s[2]; ++j)
        std::ranges::copy(ranges_row(block_idx.row(b, t, j), sel_block_size, t),
                          out.row(b, t, j).begin());
  return out;
}

}  // namespace nsa::reference
