#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nsa/decode/cache/kv_rows.h"
#include "nsa/decode/cache/paged_rows.h"
#include "nsa/decode/cache/token_ring.h"
#include "nsa/decode/decode_outputs.h"
#include "nsa/decode/step/rotated_tokens.h"

namespace nsa {

/// How the growing caches (selected tokens, compressed blocks) lie in memory.
enum class CacheLayout {
  kPaged,       ///< pages from a pool shared by the sequences
  kContiguous,  ///< one stretch of memory a sequence
};

struct LayerCacheOptions {
  CacheLayout layout = CacheLayout::kPaged;
  int64_t page_size = 0;    ///< tokens a page; 0: l'
  int64_t pool_tokens = 0;  ///< tokens the pool has room for; 0: capacity of every sequence
  bool wide_rows = false;   ///< rows in the next wider type, so that gradients of many steps add up
                            ///< without rounding each; see KvRows::widen
};

/// New tokens of a sequence that one launch takes at most (nsa/kernels/decode). Rings hold as many
/// tokens less one more than they must, so that those of a launch can be taken back.
inline constexpr int64_t kMostNewTokens = 8, kSpareSlots = kMostNewTokens - 1;

/// Memory of a caller's that holds the caches of A sequences; all tensors of one device.
struct CacheMemory {
  KvRows selected, compressed;  ///< pages of tokens and of compressed blocks
  KvRows window, source;  ///< rings [A * slots, Hkv, .], of at least min(w, capacity) and l slots
  int64_t page_size = 0, block_page_size = 0;  ///< rows of a page
  at::Tensor page_table, block_page_table;     ///< int64 [A, pages], -1 behind the last page
  at::Tensor num_tokens;                       ///< int64 [A], which steps and prefills raise
  /// The same, so that it is read once. Empty: unknown. Then nothing is read from the device, each
  /// sequence counts as `new_tokens` short of the capacity, every entry of a table is a page, and
  /// only a step of so many tokens that is one launch may follow: what a graph captures.
  std::vector<int64_t> num_tokens_on_host;
  int64_t new_tokens = 1;
};

/// Caches of a batch of sequences, each with its own length, and the decode step
/// (docs/semantics.md, Decode). Memory is taken once, by the constructor. Lengths are known on the
/// host, so a step does not wait for the device. Under autograd the caches become part of the graph
/// (and every step's backward has the size of the cache): wrap inference in at::NoGradGuard.
class LayerCache {
 public:
  /// `capacity`: most tokens a sequence may reach. `options`: float type and device of the caches.
  LayerCache(const NsaConfig& config, int64_t num_sequences, int64_t capacity,
             at::TensorOptions options, const LayerCacheOptions& memory = {});

  /// Over memory of the caller's, which must fit the configuration. Reads the tables, so it waits
  /// for the device, where the lengths are known.
  LayerCache(const NsaConfig& config, const CacheMemory& memory);

  LayerCache(LayerCache&&) = default;
  LayerCache(const LayerCache&) = delete;  // a copy would share the memory

  /// Appends lengths[b] tokens to sequence b: tokens [B, S, ...], the first lengths[b] of row b
  /// count, the others are ignored. Empty sequences take one call of nsa_attention (or, without
  /// options.prefill_batched, sequential_attention) and then fill the caches; others take steps.
  /// Outputs [B, S, ...], 0 (ids -1, lse -inf) behind a sequence's length; k_cmp, v_cmp and reads
  /// undefined. Throws, before anything changes, when capacity or pool do not suffice.
  DecodeOutputs prefill(const NsaInputs& tokens, const std::vector<int64_t>& lengths,
                        const NsaOptions& options = {});

  /// Fills an empty sequence with the keys and values of its first S tokens, as prefill does, and
  /// attends nothing: for a context whose outputs are known or computed elsewhere. tokens
  /// [1, S, ...]; q and gate_logits are not looked at. Throws, before anything changes, when the
  /// sequence is not empty, or when capacity or pool do not suffice.
  void load_context(int64_t sequence, const NsaInputs& tokens);

  /// S tokens each for `sequences` (all, unless given): tokens [A, S, ...] in that order, S >= 1.
  /// Each is appended, a compressed block emitted if one ends there, and attends. Outputs
  /// [A, S, ...], scores as wide as the longest sequence needs; k_cmp and v_cmp undefined.
  /// options.block_idx [A, S, Hkv, K] replaces the selection. Up to kMostNewTokens tokens, and not
  /// more than block_stride, are one launch where a token is; else one token follows the other.
  DecodeOutputs step(const NsaInputs& tokens, const NsaOptions& options = {},
                     const std::optional<std::vector<int64_t>>& sequences = std::nullopt);

  /// Takes the pages that every sequence needs to reach `num_tokens` tokens, so that steps up to
  /// there leave the page tables alone. Throws as prefill does.
  void reserve(int64_t num_tokens);
  /// Accounts for one replay of a step of all sequences, of `new_tokens` tokens each, that was
  /// captured in a CUDA graph; call it before the replay. Capturing itself makes no sequence
  /// longer. A step can be captured where it is one launch (backend `fused`), after reserve. Throws
  /// when a sequence would exceed the capacity or what is reserved.
  void before_replay(int64_t new_tokens = 1);

  /// Takes the last tokens of a sequence back, so that it has `num_tokens` (speculative decoding:
  /// those that were not accepted). Pages stay with the sequence, counters as they are. Throws,
  /// before anything changes, when the rings no longer hold what the next step needs: at least
  /// kSpareSlots tokens can be taken back behind a step, all of a sequence that fits the rings.
  void truncate(int64_t sequence, int64_t num_tokens);

  /// Empties a sequence and gives its pages back; its counters start again.
  void reset(int64_t sequence);

  int64_t num_sequences() const { return static_cast<int64_t>(num_tokens_.size()); }
  int64_t capacity() const { return capacity_; }
  int64_t num_tokens(int64_t sequence) const {
    return num_tokens_.at(static_cast<size_t>(sequence));
  }
  /// Compressed blocks emitted so far.
  int64_t num_blocks(int64_t sequence) const {
    return num_blocks_.at(static_cast<size_t>(sequence));
  }
  /// Their keys and values, copied: {[N_c, Hkv, dk], [N_c, Hkv, dv]}.
  std::pair<at::Tensor, at::Tensor> blocks(int64_t sequence) const;
  const DecodeCounters& counters() const { return counters_; }
  int64_t bytes() const;

  /// The caches themselves, for inspection.
  PagedRows& selected_tokens() { return selected_; }
  PagedRows& compressed_blocks() { return compressed_; }
  TokenRing& window() { return window_; }
  /// The last l tokens of the source of compression, keys rotated iff RoPE precedes pooling.
  TokenRing& compression_source() { return source_; }

 private:
  struct Active;
  struct StepLoads;

  Active activate(const std::optional<std::vector<int64_t>>& sequences) const;
  /// Of how many tokens the next one, or the next launch, is: at least 1.
  int64_t tokens_at_once(const NsaInputs& tokens, Active active, const NsaOptions& options) const;
  /// A step of so many tokens.
  DecodeOutputs step_at_once(const NsaInputs& tokens, Active& active, const NsaOptions& options);
  void set_last(Active& active, int64_t new_tokens) const;
  /// `obstacle`: why the step is not one launch, for the record.
  DecodeOutputs plain_step(const NsaInputs& tokens, Active& active, const NsaOptions& options,
                           const std::string& obstacle);
  /// Why a step is not one launch of the project's kernel; empty where it is.
  std::string one_launch_obstacle(const NsaInputs& tokens, const Active& active,
                                  const NsaOptions& options) const;
  DecodeOutputs step_in_one_launch(const NsaInputs& tokens, Active& active,
                                   const NsaOptions& options);
  /// Why the CPU kernels do not attend in a step; empty where they do.
  std::string cpu_step_obstacle(const NsaInputs& tokens, const NsaOptions& options) const;
  DecodeOutputs attend_by_cpu_kernels(const NsaInputs& tokens, const at::Tensor& q_rot,
                                      const Active& active) const;
  /// Brings `order_device_` up to date, where lengths are known; does not wait for the device.
  void sort_sequences();
  void put_order(std::vector<int32_t> order);
  /// Tokens that the pages of the longest sequence of a step have room for.
  int64_t longest_room(const Active& active) const;
  /// Host side of more tokens.
  void grow(const std::vector<int64_t>& sequences, int64_t new_tokens);
  /// Host side of the blocks that end with the newest tokens; their sequences.
  std::vector<int64_t> grow_blocks(const std::vector<int64_t>& sequences, int64_t new_tokens);
  void require_room(const std::vector<int64_t>& sequences, const std::vector<int64_t>& added) const;
  void check_tokens(const NsaInputs& tokens, int64_t batch) const;
  void append(const NsaInputs& tokens, const RotatedTokens& rotated, const Active& active);
  void emit(const NsaInputs& tokens, const Active& active);
  DecodeOutputs attend(const NsaInputs& tokens, const at::Tensor& q_rot, const Active& active,
                       const NsaOptions& options);
  void attend_compressed(const Active& active, StepLoads& loads, const NsaOptions& options,
                         DecodeOutputs& out) const;
  void attend_selected(const Active& active, StepLoads& loads, const NsaOptions& options,
                       DecodeOutputs& out) const;
  void attend_window(const Active& active, StepLoads& loads, DecodeOutputs& out) const;
  DecodeOutputs prefill_empty(const NsaInputs& tokens, const std::vector<int64_t>& sequences,
                              const std::vector<int64_t>& lengths, const NsaOptions& options);
  void fill(int64_t sequence, int64_t length, const NsaInputs& tokens, const RotatedTokens& rotated,
            const NsaOutputs& batched);
  /// int64 on the device of the caches; does not wait for it.
  at::Tensor on_device(const std::vector<int64_t>& values) const;

  NsaConfig config_;
  int64_t capacity_;
  bool lengths_known_ = true;  ///< on the host
  at::TensorOptions options_;
  PagedRows selected_, compressed_;
  TokenRing window_, source_;
  std::vector<int64_t> num_tokens_, num_blocks_;
  at::Tensor num_tokens_device_, num_blocks_device_;  ///< the same, int64 [B]
  at::Tensor all_sequences_;                          ///< 0 .. B-1 on the device
  at::Tensor arrivals_;                               ///< int32 [B] zeros, of the kernel
  std::vector<int32_t> order_;  ///< all sequences, the longest first; empty until they differ
  at::Tensor order_device_;     ///< the same, int32 [B], of the kernel; undefined likewise
  at::Tensor half_turns_;       ///< fp64 [dk / 2] on the device, of the kernel: base^(-2m/dk) / pi
  int64_t captured_room_ = INT64_MAX;  ///< tokens that captured steps are cut for
  DecodeCounters counters_;
};

}  // namespace nsa
