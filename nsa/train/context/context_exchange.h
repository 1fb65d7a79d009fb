#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "nsa/train/context/context_shard.h"
#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// Bytes that this rank received from others, by part of a call ("selected", "window, gradients").
using ReceivedBytes = std::map<std::string, int64_t>;

/// Blocks of the selected branch that this rank gets from others and gives to them. A block of one
/// KV head of one sequence counts as one.
struct BlockTransfer {
  std::vector<int64_t> to, from;  ///< blocks, by rank
  at::Tensor given;               ///< int64 [sum of to]: row, place among the blocks of this rank
  at::Tensor got;                 ///< int64 [sum of from]: row, place in the sequence
  int64_t blocks = 0;             ///< of a rank; given = row * blocks + place, row = b Hkv + h, and
                                  ///< got = row * blocks * world + place
};

/// What ranks of a context group send one another for an attention call. Every call is collective:
/// all ranks make it in the same order, backward passes in the reverse one. Gradients of what
/// several ranks read are added in the order of the ranks, in the accumulation type: their bits do
/// not depend on timing. x [B, n, H, D]: a rank's two pieces, one behind the other.
class ContextExchange {
 public:
  /// `group` and `log` outlive it.
  ContextExchange(RankGroup& group, CollectiveLog& log) : group_(group), log_(log) {}

  int64_t rank() const { return group_.rank(); }
  int64_t world() const { return group_.world(); }

  /// The x of all ranks in the order of the sequence, [B, world n, H, D]. Differentiable.
  at::Tensor gather_tokens(const at::Tensor& x, const std::string& part);
  /// In front of each piece the last `rows` tokens of the piece before it in the sequence, zeros in
  /// front of the first: [B, 2 (rows + n / 2), H, D]; rows <= n / 2. Differentiable.
  at::Tensor with_previous(const at::Tensor& x, int64_t rows, const std::string& part);
  /// The first `tokens` tokens of the sequence [B, tokens, H, D]: this rank's rows and the blocks
  /// of `transfer` where they belong, zeros elsewhere. `block`: tokens of a block. Differentiable.
  at::Tensor fetch_blocks(const at::Tensor& x, const BlockTransfer& transfer, int64_t block,
                          int64_t tokens, const std::string& part);

  /// Who needs which blocks: block_idx [B, S, Hkv, n] of this rank's queries, -1 where a place is
  /// unused; `blocks`: of a rank. Waits for the device. `most`: the most blocks that any rank gets.
  BlockTransfer agree_on_blocks(const at::Tensor& block_idx, int64_t blocks, int64_t& most);

  const ReceivedBytes& received() const { return received_; }

  // What the differentiable calls are made of; outside of autograd.

  /// rows [sum of to, ...], `to[r]` of them for rank r -> rows [sum of from, ...].
  at::Tensor exchange(const at::Tensor& rows, const std::vector<int64_t>& to,
                      const std::vector<int64_t>& from, const std::string& part);
  /// x -> [world, sizes of x].
  at::Tensor gather(const at::Tensor& x, const std::string& part);

 private:
  void count(const std::string& part, int64_t bytes) { received_[part] += bytes; }

  RankGroup& group_;
  CollectiveLog& log_;
  ReceivedBytes received_;
};

}  // namespace nsa::train
