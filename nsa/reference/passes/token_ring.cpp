#include "nsa/reference/passes/token_ring.h"

#include <algorithm>
#include <stdexcept>

namespace nsa::reference {

TokenRing::TokenRing(int64_t slots, int64_t num_kv_heads, int64_t qk_head_dim, int64_t v_head_dim)
    : positions_(static_cast<size_t>(slots), -1),
      k_({slots, num_kv_heads, qk_head_dim}),
      v_({slots, num_kv_heads, v_head_dim}) {}

void TokenRing::put(int64_t position, std::span<const double> k, std::span<const double> v) {
  const int64_t slot = position % k_.size(0);
  positions_[static_cast<size_t>(slot)] = position;
  std::ranges::copy(k, k_.row(slot).begin());
  std::ranges::copy(v, v_.row(slot).begin());
}

KeyValue TokenRing::at(int64_t position, int64_t kv_head) const {
  const int64_t slot = position % k_.size(0);
  const int64_t held = positions_[static_cast<size_t>(slot)];
  if (held != position)
    throw std::logic_error("nsa::reference::TokenRing: position " + std::to_string(position) +
                           " is gone, its slot holds " + std::to_string(held));
  return {k_.row(slot, kv_head), v_.row(slot, kv_head)};
}

}  // namespace nsa::reference
