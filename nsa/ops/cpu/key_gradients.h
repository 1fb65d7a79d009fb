#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/ops/cpu/tiles/key_panels.h"
#include "nsa/ops/cpu/tiles/tile_keys.h"

namespace nsa::cpu {

/// Ranges of a call that many threads can share, and that few threads finish at one time.
inline constexpr int64_t kRangesOfCall = 16;

/// Gradients of keys and values while they are summed. Queries are cut into ranges whose number
/// sizes decide; each range has sums of its own over the panels that it can reach, and they are
/// added up in the order of the ranges. So every sum has one owner, and its bits do not depend on
/// the number of threads. Sums of all ranges hold about half as many values as keys times ranges.
class KeyGradients {
 public:
  KeyGradients(const AttendedKeys& attended, const Sizes& sizes, int64_t queries_of_tile);

  struct Range {
    int64_t matrix;
    int64_t first_query, num_queries;
    int64_t first_panel, num_panels;
    int64_t place;  ///< of its first panel among all
  };
  /// By matrix, then by query.
  const std::vector<Range>& ranges() const { return ranges_; }
  /// [64, dk_row] of a panel that the range can reach.
  float* keys(const Range& range, int64_t panel) const;
  /// [64, dv_row]
  float* values(const Range& range, int64_t panel) const;
  /// Sets the sums of a range to 0; before it is summed, by the thread that sums.
  void clear(const Range& range) const;
  /// Writes the sums of all ranges to d_k and d_v.
  void store(const at::Tensor& d_k, const at::Tensor& d_v) const;

 private:
  void store_panel(int64_t matrix, int64_t panel, const HeadRows& d_k, const HeadRows& d_v,
                   float* sum) const;

  Sizes sizes_;
  int64_t ranges_of_matrix_;
  std::vector<Range> ranges_;
  at::Tensor keys_, values_;  ///< [panels of all ranges, 64 * row]
};

}  // namespace nsa::cpu
