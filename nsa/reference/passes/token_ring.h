#pragma once
#include <cstdint>
#include <span>

#include "nsa/reference/branches/attention.h"
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// The last `slots` tokens' keys and values of all KV heads; position p is in slot p mod slots.
class TokenRing {
 public:
  TokenRing(int64_t slots, int64_t num_kv_heads, int64_t qk_head_dim, int64_t v_head_dim);

  /// k: Hkv * dk values, v: Hkv * dv values; overwrites position - slots.
  void put(int64_t position, std::span<const double> k, std::span<const double> v);

  /// Throws std::logic_error when the slot holds another position: never written or overwritten.
  KeyValue at(int64_t position, int64_t kv_head) const;

 private:
  std::vector<int64_t> positions_;  // by slot, -1 while empty
  Tensor<double> k_, v_;            // [slots,Hkv,D]
};

}  // namespace nsa::reference
