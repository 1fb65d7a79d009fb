#pragma once
#include <string>
#include <utility>
#include <vector>

#include "nsa/layer/branches.h"
#include "nsa/train/context/context_documents.h"
#include "nsa/train/context/context_exchange.h"
#include "nsa/train/context/context_shard.h"

namespace nsa::train {

/// How keys and values of selected blocks come to the queries that chose them.
enum class SelectedTransfer {
  kAuto,    ///< whichever moves less at the rank that gets most (context_cost.h)
  kGather,  ///< all of them to every rank
  kFetch    ///< by need: the blocks that some query of a rank chose
};
std::string to_string(SelectedTransfer transfer);

/// The tokens of a rank among those of whole sequences: x [B, S or more, ..] -> [B, shard.count(),
/// ..], its two pieces one behind the other.
at::Tensor pieces_of(const at::Tensor& x, const ContextShard& shard);

/// NSA of sequences whose tokens are divided among the ranks of a group (context parallelism):
/// queries stay; compressed keys and values are gathered, a block belongs to the rank that has its
/// last token; the window's keys come from the rank that has the piece before; selected blocks by
/// SelectedTransfer. Forward and backward equal one device's up to rounding. Every call is
/// collective.
class ContextAttention {
 public:
  /// `group` and `log` outlive it. `sequence`: tokens of a whole sequence. Throws InputError where
  /// it cannot be divided (context_shard.h).
  ContextAttention(RankGroup& group, CollectiveLog& log, const NsaConfig& config, int64_t sequence,
                   SelectedTransfer selected = SelectedTransfer::kAuto);

  /// This rank's part of a call: `local` as NsaInputs with S = shard().count(), its two pieces one
  /// behind the other; no block ids are given in `options`. Scores are not kept; of the
  /// outputs o, o_*, lse_*, gates and block_idx are there. Differentiable in all inputs; gradients
  /// of phi's weights are this rank's terms of their sum over the ranks. Throws c10::Error by name.
  /// `cu_seqlens` int32 [documents + 1] on the CPU: where documents begin in the whole rows, one
  /// row behind the other; a row begins one, and attention stays within them. Not defined: rows
  /// are not packed.
  NsaOutputs operator()(const NsaInputs& local, const NsaOptions& options = {},
                        const at::Tensor& cu_seqlens = {});

  const ContextShard& shard() const { return shard_; }
  /// Since the construction.
  const ReceivedBytes& received() const { return exchange_.received(); }
  int64_t calls() const { return calls_; }
  /// What the last call did: gather or fetch.
  SelectedTransfer last_transfer() const { return last_; }

 private:
  using KeysAndValues = std::pair<at::Tensor, at::Tensor>;

  struct Keys {
    std::vector<at::Tensor> q_rot;         ///< of each piece of this rank
    at::Tensor k_sel, v_sel;               ///< of this rank
    at::Tensor k_cmp, v_cmp;               ///< of the sequence
    std::vector<at::Tensor> k_win, v_win;  ///< of each piece, with what is before it in front
    KeysAndValues gathered;                ///< of the selected branch, once they are
  };
  Keys keys_of(const NsaInputs& local);
  KeysAndValues compressed(const NsaInputs& local);
  KeysAndValues selected(Keys& keys, int64_t slot, const at::Tensor& block_idx);
  AttendedKeys attended(Keys& keys, int64_t slot);
  struct WholeRows;
  WholeRows gather_rows(const NsaInputs& local, const std::vector<DocumentSegment>& segments);
  NsaOutputs attend_segment(const WholeRows& rows, const DocumentSegment& segment,
                            const NsaInputs& local, const NsaOptions& options);
  NsaOutputs attend_documents(const NsaInputs& local, const at::Tensor& cu_seqlens,
                              const NsaOptions& options);

  ContextExchange exchange_;
  NsaConfig config_;
  ContextShard shard_;
  SelectedTransfer wanted_, last_ = SelectedTransfer::kGather;
  int64_t calls_ = 0;
};

}  // namespace nsa::train
