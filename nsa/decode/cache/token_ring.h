#pragma once
#include <vector>

#include "nsa/decode/cache/kv_rows.h"

namespace nsa {

/// The last `num_slots` tokens of every sequence: position p is in slot p mod num_slots.
class TokenRing {
 public:
  TokenRing(const NsaConfig& config, int64_t num_sequences, int64_t num_slots,
            at::TensorOptions options);
  /// Over memory of the caller's, rows of `memory` are sequences * num_slots; `num_tokens` tokens
  /// were written to each sequence.
  TokenRing(KvRows memory, int64_t num_slots, const std::vector<int64_t>& num_tokens);

  /// Rows of `kv` for positions of sequences, int64 tensors that broadcast to each other; a
  /// negative position gives -1.
  at::Tensor rows(const at::Tensor& sequence, const at::Tensor& position) const;

  int64_t num_slots() const { return num_slots_; }
  /// Latest tokens held, at most num_slots.
  int64_t size(int64_t sequence) const { return size_[static_cast<size_t>(sequence)]; }
  /// `num_tokens` more tokens were written.
  void grow(int64_t sequence, int64_t num_tokens);
  /// The last `num_tokens` tokens count no more.
  void shrink(int64_t sequence, int64_t num_tokens);
  /// Forgets what a sequence put in.
  void clear(int64_t sequence) { size_[static_cast<size_t>(sequence)] = 0; }

  KvRows kv;

 private:
  int64_t num_slots_;
  std::vector<int64_t> size_;
};

}  // namespace nsa
