#pragma once
#include <cstdint>

namespace nsa {

/// Writes the intervals of one row of `width` ids at position t to out [width, 2], unused (0, 0).
void write_row_ranges(const int32_t* ids, int64_t width, int64_t t, int64_t sel_block_size,
                      int32_t* out);

}  // namespace nsa
