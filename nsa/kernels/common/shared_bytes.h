#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

/// Shared memory that a block of threads of the code of sm_80 asks for, so that it can be compared
/// with what a card has before a launch; 0 where no kernel has these head dims. The emulated tests
/// compare these numbers with the kernels.
namespace nsa::kernels::sm80 {

struct SharedBytes {
  int64_t qk_head_dim, v_head_dim;
  size_t interval_backward, rows, selected_backward;
};
inline constexpr SharedBytes kSharedBytes[] = {{64, 64, 50176, 40960, 68224},
                                               {128, 128, 82688, 114688, 151424},
                                               {192, 128, 82432, 106496, 141952},
                                               {256, 256, 131584, 163840, 148864}};

constexpr SharedBytes shared_bytes_of(int64_t qk_head_dim, int64_t v_head_dim) {
  for (const SharedBytes& one : kSharedBytes)
    if (one.qk_head_dim == qk_head_dim && one.v_head_dim == v_head_dim) return one;
  return {};
}

/// Interval attention, forward: two tiles of 64 keys and of their values. With block selection the
/// lists of the tokens of a tile lie in the place of the values and may be longer; `wide_lists`:
/// SelectionSizes::wide_lists.
constexpr size_t interval_forward_bytes(int64_t qk_head_dim, int64_t v_head_dim, int64_t group_size,
                                        bool selects, bool wide_lists) {
  if (shared_bytes_of(qk_head_dim, v_head_dim).rows == 0) return 0;
  const int64_t bytes_of_token = wide_lists ? 1072 : 800;
  constexpr int64_t kRows = 64, kTiles = int64_t{2} * 64 * 2;
  int64_t rows_of_token = 1;
  while (rows_of_token < std::min<int64_t>(group_size, 16)) rows_of_token *= 2;
  const int64_t lists = selects ? kRows / rows_of_token * bytes_of_token : 0;
  const int64_t columns = v_head_dim > 128 ? v_head_dim / 2 : v_head_dim;  // of a block
  return static_cast<size_t>(kTiles * qk_head_dim + std::max(kTiles * columns, lists));
}

/// The index of the selected branch in the order of keys: a counter for each tile of 64 keys.
constexpr size_t tile_index_bytes(int64_t num_keys) {
  return static_cast<size_t>((num_keys + 63) / 64 * 4);
}

}  // namespace nsa::kernels::sm80
