#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"

namespace nsa {

/// Which keys a query may attend, in one of three forms. Query i of a call stands at position
/// first_position + i.
struct KeyMask {
  enum Kind : int64_t {
    kVisibleBlocks,  ///< key i is a compressed block: i*stride + extent - 1 <= t
    kWindow,         ///< max(0, t - extent + 1) <= key <= t
    kRanges,         ///< key <= t, inside one of the intervals of the row
  };
  Kind kind = kWindow;
  int64_t first_position = 0;
  int64_t extent = 0;  ///< block size l, or window w
  int64_t stride = 1;  ///< block stride d
  at::Tensor ranges;   ///< kRanges: [B, S, Hkv, K, 2] int32

  /// Keys [begin, end) hold every key that queries [query, query + count) may attend.
  struct Span {
    int64_t begin;
    int64_t end;
  };
  Span span(int64_t query, int64_t count, int64_t num_keys) const;

  /// True where allowed; broadcastable to [B, Hkv, 1, count, span.end - span.begin].
  at::Tensor allowed(int64_t query, int64_t count, Span span, const at::Device& device) const;
};

/// Keys of the compressed branch and of the window, the first query at position 0.
KeyMask compressed_mask(const NsaConfig& config);
KeyMask window_mask(const NsaConfig& config);

}  // namespace nsa
