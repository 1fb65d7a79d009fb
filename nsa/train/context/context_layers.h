#pragma once
#include <memory>
#include <vector>

#include "nsa/model/decoder.h"
#include "nsa/train/context/context_attention.h"
#include "nsa/train/loop/non_finite.h"

namespace nsa::train {

/// The attention of a model whose sequences are divided among ranks. Ranks 0 .. size - 1 are a
/// context group with rows of their own, the next ones another: the groups are data-parallel.
class ContextLayers {
 public:
  /// `ranks` and `log` outlive it. `size`: ranks of a group, a divisor of their number. Throws
  /// InputError where sequences of `sequence` tokens cannot be divided so. Collective.
  ContextLayers(const RankGroup& ranks, CollectiveLog& log, int64_t size, const NsaConfig& config,
                int64_t sequence);

  const ContextShard& shard() const { return attention_->shard(); }
  int64_t group_index() const { return group_index_; }  ///< among the data-parallel groups
  int64_t num_groups() const { return num_groups_; }

  /// Runs every layer on this rank's part of the rows; within documents where `cu_seqlens` has
  /// them (ContextAttention).
  LayerAttention attention(const at::Tensor& cu_seqlens = {});
  /// The inputs of this rank [B, shard().count()] of rows [B, S + 1].
  at::Tensor inputs(const at::Tensor& rows) const { return pieces_of(rows, shard()); }
  /// The tokens behind them.
  at::Tensor targets(const at::Tensor& rows) const { return inputs(rows.slice(1, 1)); }
  /// Mean of `loss` over its pieces; each is called with logits and tokens of one. `packed`: over
  /// the targets that packed_next_token_loss counts, which pieces have unlike numbers of.
  at::Tensor mean_loss(const LossFunction& loss, const at::Tensor& logits, const at::Tensor& rows,
                       bool packed) const;
  /// MiB that a rank received in a call (a layer of a micro-batch), at the rank that received most,
  /// beside the formula's: a row each for compressed and selected keys and values, those at the
  /// boundaries of parts, and gradients; of packed rows one for all keys and values. Of all calls
  /// until now; collective over `ranks`.
  struct Traffic {
    const char* part;
    double predicted_mib, received_mib;
  };
  std::vector<Traffic> traffic(RankGroup& ranks, int64_t batch, int64_t value_bytes) const;
  /// Ends the group, when all ranks have come so far; no call may follow.
  void leave() { group_->leave(); }

 private:
  NsaConfig config_;
  int64_t group_index_, num_groups_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<ContextAttention> attention_;
};

}  // namespace nsa::train
