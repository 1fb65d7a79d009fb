#include "nsa/ops/cpu/tiles/query_tile.h"

#include <algorithm>

namespace nsa::cpu {

const float* gather_rows(const PanelRows& rows, const float* tile, int64_t width, float* buffer) {
  const int64_t block = rows.group * width;
  if (rows.queries[rows.count - 1] - rows.queries[0] == rows.count - 1)
    return tile + rows.queries[0] * block;
  for (int64_t i = 0; i < rows.count; ++i)
    std::copy_n(tile + rows.queries[i] * block, block, buffer + i * block);
  return buffer;
}

}  // namespace nsa::cpu
