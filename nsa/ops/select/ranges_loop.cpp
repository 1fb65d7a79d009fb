#include "nsa/ops/select/ranges_loop.h"

#include <algorithm>

namespace nsa {

void write_row_ranges(const int32_t* ids, int64_t width, int64_t t, int64_t sel_block_size,
                      int32_t* out) {
  std::fill(out, out + 2 * width, 0);
  int64_t last_kept = -1;
  int64_t count = 0;
  for (int64_t place = 0; place < width; ++place) {
    const int64_t id = ids[place];  // 64 bits: id * l' may pass 2^31
    if (id < 0 || id * sel_block_size > t || id <= last_kept) continue;
    const bool extends = count > 0 && id == last_kept + 1;
    if (!extends) out[2 * count++] = static_cast<int32_t>(id * sel_block_size);
    out[2 * count - 1] = static_cast<int32_t>(std::min((id + 1) * sel_block_size, t + 1));
    last_kept = id;
  }
}

}  // namespace nsa
