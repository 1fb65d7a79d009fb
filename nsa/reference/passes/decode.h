#pragma once
#include <cstdint>
#include <vector>

#include "nsa/reference/passes/row.h"
#include "nsa/reference/passes/token_ring.h"

namespace nsa::reference {

/// Caches of one sequence and its decode step. A batch is one object a sequence, each with its own
/// t. Inputs are [1,L,...] and un-rotated; they are rotated to the positions num_tokens().. on.
class DecodeCache {
 public:
  /// capacity: most tokens the sequence may reach. The weights are taken from `phi_k`, `phi_v`.
  DecodeCache(const Config& config, PhiWeights phi_k, PhiWeights phi_v, int64_t capacity);

  /// L tokens at once. Into an empty cache: batched `forward`, then the caches are filled. Into a
  /// non-empty one: L steps. Outputs [1,L,...], p_cmp and scores as wide as after the last token.
  Outputs prefill(const Inputs& tokens);

  /// One token, L = 1: append, emit a compressed block if one ends here, then attend.
  Outputs step(const Inputs& token);

  int64_t num_tokens() const { return num_tokens_; }
  Tensor<double> k_cmp() const;  ///< [1,N_c,Hkv,dk] emitted so far
  Tensor<double> v_cmp() const;  ///< [1,N_c,Hkv,dv]
  /// Source tokens loaded by emissions during steps, all KV heads together; no part of `reads`.
  int64_t emission_reads() const { return emission_reads_; }

 private:
  void check(const Inputs& tokens) const;
  void append(const Inputs& tokens, int64_t row);
  void emit_block();
  void fill(const Inputs& tokens, const Outputs& batched);
  void attend_last(const Inputs& tokens, int64_t row, Outputs& out);
  RowSources sources(int64_t kv_head) const;
  std::vector<double> rotated(std::span<const double> heads, int64_t position) const;

  Config config_;
  PhiWeights phi_k_, phi_v_;
  int64_t capacity_;
  int64_t num_tokens_ = 0;
  int64_t emission_reads_ = 0;
  Tensor<double> k_sel_, v_sel_;  // [capacity,Hkv,D], rotated keys
  Tensor<double> k_cmp_, v_cmp_;  // [N_c(capacity),Hkv,D]
  TokenRing window_;              // rotated keys
  TokenRing cmp_src_;  // the last l source tokens, keys rotated iff RoPE precedes pooling
};

/// Decode mode for a whole run: sequence b is prefilled with prefill[b] tokens, the rest are single
/// steps. Outputs as `forward`, bit-equal to it; reads are those that happened.
Outputs decode(const Config& config, const Inputs& inputs, const std::vector<int64_t>& prefill);

}  // namespace nsa::reference
