#include "nsa/decode/cache/token_ring.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace nsa {

TokenRing::TokenRing(const NsaConfig& config, int64_t num_sequences, int64_t num_slots,
                     at::TensorOptions options)
    : kv(KvRows::allocate(config, num_sequences * num_slots, options)),
      num_slots_(num_slots),
      size_(static_cast<size_t>(num_sequences), 0) {}

TokenRing::TokenRing(KvRows memory, int64_t num_slots, const std::vector<int64_t>& num_tokens)
    : kv(std::move(memory)), num_slots_(num_slots), size_(num_tokens) {
  for (int64_t& size : size_) size = std::min(size, num_slots);
}

at::Tensor TokenRing::rows(const at::Tensor& sequence, const at::Tensor& position) const {
  return position.remainder(num_slots_)
      .add(sequence.mul(num_slots_))
      .masked_fill_(position.lt(0), -1);
}

void TokenRing::grow(int64_t sequence, int64_t num_tokens) {
  int64_t& size = size_[static_cast<size_t>(sequence)];
  size = std::min(num_slots_, size + num_tokens);
}

void TokenRing::shrink(int64_t sequence, int64_t num_tokens) {
  int64_t& size = size_[static_cast<size_t>(sequence)];
  size = std::max<int64_t>(0, size - num_tokens);
}

}  // namespace nsa
