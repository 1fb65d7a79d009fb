#include "nsa/train/context/context_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "nsa/diagnostics/record_stage.h"
#include "nsa/layer/branches.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/rope/rope.h"
#include "nsa/train/context/context_cost.h"

namespace nsa::train {
namespace {

/// The two pieces of a rank, views. Their gradients are joined by one copy, where those of two
/// narrow() would each be padded to the whole and added.
std::vector<at::Tensor> in_pieces(const at::Tensor& x) {
  return x.split(x.size(1) / ContextShard::kPieces, 1);
}

/// Results of the two pieces, one behind the other.
NsaOutputs join(const NsaOutputs& a, const NsaOutputs& b) {
  NsaOutputs out;
  for (const auto field : {&NsaOutputs::o, &NsaOutputs::o_cmp, &NsaOutputs::o_sel,
                           &NsaOutputs::o_win, &NsaOutputs::lse_cmp, &NsaOutputs::lse_sel,
                           &NsaOutputs::lse_win, &NsaOutputs::gates, &NsaOutputs::block_idx})
    out.*field = at::cat({a.*field, b.*field}, 1);
  return out;
}

}  // namespace

std::string to_string(SelectedTransfer transfer) {
  switch (transfer) {
    case SelectedTransfer::kAuto:
      return "auto";
    case SelectedTransfer::kGather:
      return "gather";
    case SelectedTransfer::kFetch:
      return "fetch";
  }
  return "?";
}

at::Tensor pieces_of(const at::Tensor& x, const ContextShard& shard) {
  return at::cat(
      {x.slice(1, shard.begin(0), shard.end(0)), x.slice(1, shard.begin(1), shard.end(1))}, 1);
}

ContextAttention::ContextAttention(RankGroup& group, CollectiveLog& log, const NsaConfig& config,
                                   int64_t sequence, SelectedTransfer selected)
    : exchange_(group, log),
      config_(config),
      shard_{group.rank(), group.world(), sequence},
      wanted_(selected) {
  config.validate();
  require_context_shards(config, sequence, group.world());
}

/// All blocks of the sequence. What is before the first piece is zeros: blocks that reach into it
/// do not exist and are left out behind the gather.
ContextAttention::KeysAndValues ContextAttention::compressed(const NsaInputs& local) {
  const int64_t halo = config_.block_size - config_.block_stride;
  const at::Tensor k = exchange_.with_previous(local.k_cmp_src, halo, "compression");
  const at::Tensor v = exchange_.with_previous(local.v_cmp_src, halo, "compression");
  std::vector<at::Tensor> k_here, v_here;
  for (int64_t slot = 0; slot < ContextShard::kPieces; ++slot) {
    const int64_t rows = halo + shard_.piece_tokens();
    const auto [k_cmp, v_cmp] =
        compress(k.narrow(1, slot * rows, rows), v.narrow(1, slot * rows, rows), local.phi_k,
                 local.phi_v, config_, shard_.begin(slot) - halo);
    k_here.push_back(k_cmp);
    v_here.push_back(v_cmp);
  }
  record_stage("compress", compress_backend(k, config_));
  const int64_t absent = halo / config_.block_stride, all = config_.num_compressed(shard_.sequence);
  const auto whole = [&](const std::vector<at::Tensor>& here) {
    return exchange_.gather_tokens(at::cat(here, 1), "compressed").narrow(1, absent, all);
  };
  return {whole(k_here), whole(v_here)};
}

ContextAttention::Keys ContextAttention::keys_of(const NsaInputs& local) {
  std::vector<at::Tensor> positions;
  for (int64_t slot = 0; slot < ContextShard::kPieces; ++slot)
    positions.push_back(at::arange(shard_.begin(slot), shard_.end(slot),
                                   local.q.options().dtype(at::kLong).requires_grad(false)));
  Rotation rotation(at::cat(positions), config_.rope_base, config_.rope_pairs);
  const auto turned = [&](const at::Tensor& x) {
    return config_.rope == RopeMode::kNone ? x : rotation(x);
  };
  const int64_t halo = std::max<int64_t>(config_.window - 1, 0);
  Keys keys;
  keys.q_rot = in_pieces(turned(local.q));
  keys.k_sel = turned(local.k_sel);
  keys.v_sel = local.v_sel;
  std::tie(keys.k_cmp, keys.v_cmp) = compressed(local);
  keys.k_win = in_pieces(exchange_.with_previous(turned(local.k_win), halo, "window"));
  keys.v_win = in_pieces(exchange_.with_previous(local.v_win, halo, "window"));
  return keys;
}

/// Gathered once for both pieces; fetched for each.
ContextAttention::KeysAndValues ContextAttention::selected(Keys& keys, int64_t slot,
                                                           const at::Tensor& block_idx) {
  const int64_t tokens = shard_.end(slot);
  BlockTransfer transfer;
  if (!keys.gathered.first.defined() && wanted_ != SelectedTransfer::kGather) {
    const int64_t blocks = shard_.count() / config_.sel_block_size;
    int64_t most = 0;
    transfer = exchange_.agree_on_blocks(block_idx, blocks, most);
    const int64_t rest = keys.k_sel.size(0) * keys.k_sel.size(2) * blocks * (shard_.world - 1);
    // Half of a gather is this piece's.
    last_ = wanted_ == SelectedTransfer::kFetch ||
                    fetching_is_cheaper(ContextShard::kPieces * most, rest)
                ? SelectedTransfer::kFetch
                : SelectedTransfer::kGather;
    if (last_ == SelectedTransfer::kFetch) {
      const auto fetched = [&](const at::Tensor& x) {
        return exchange_.fetch_blocks(x, transfer, config_.sel_block_size, tokens, "selected");
      };
      return {fetched(keys.k_sel), fetched(keys.v_sel)};
    }
  }
  if (!keys.gathered.first.defined()) {
    last_ = SelectedTransfer::kGather;
    keys.gathered = {exchange_.gather_tokens(keys.k_sel, "selected"),
                     exchange_.gather_tokens(keys.v_sel, "selected")};
  }
  return {keys.gathered.first.narrow(1, 0, tokens), keys.gathered.second.narrow(1, 0, tokens)};
}

/// What the queries of a piece attend to. `keys` outlives it.
AttendedKeys ContextAttention::attended(Keys& keys, int64_t slot) {
  const auto at_slot = static_cast<size_t>(slot);
  const int64_t halo = std::max<int64_t>(config_.window - 1, 0),
                before = std::min(halo, shard_.begin(slot));  // nothing is before the first piece
  const auto in_window = [&](const std::vector<at::Tensor>& pieces) {
    const at::Tensor& x = pieces[at_slot];
    return before == halo ? x : x.narrow(1, halo - before, x.size(1) - halo + before);
  };
  const int64_t seen = config_.num_compressed(shard_.end(slot));
  return {
      .q_rot = keys.q_rot[at_slot],
      .k_cmp = keys.k_cmp.narrow(1, 0, seen),
      .v_cmp = keys.v_cmp.narrow(1, 0, seen),
      .k_win = in_window(keys.k_win),
      .v_win = in_window(keys.v_win),
      .selected = [this, &keys, slot](const at::Tensor& ids) { return selected(keys, slot, ids); },
      .first_position = shard_.begin(slot)};
}

NsaOutputs ContextAttention::operator()(const NsaInputs& local, const NsaOptions& options,
                                        const at::Tensor& cu_seqlens) {
  TORCH_CHECK(!local.cu_seqlens.defined(),
              "nsa::ContextAttention: cu_seqlens must not be among the inputs of a part: documents "
              "of whole rows are given beside them");
  TORCH_CHECK(!options.block_idx.defined(),
              "nsa::ContextAttention: options.block_idx must not be given: ranks choose blocks of "
              "whole sequences");
  check_inputs("ContextAttention", local, config_);
  TORCH_CHECK(local.q.size(1) == shard_.count(), "nsa::ContextAttention: q must have the ",
              shard_.count(), " tokens of this rank's part, got ", local.q.size(1));
  ++calls_;
  const auto record = c10::make_intrusive<RunRecord>(options.sdpa_audit, current_record());
  const RunRecordScope scope(record);
  NsaOptions effective = options.effective();
  effective.keep_scores = false;
  NsaOutputs out;
  if (cu_seqlens.defined()) {
    out = attend_documents(local, cu_seqlens, effective);
  } else {
    Keys keys = keys_of(local);
    const std::vector<NsaOutputs> of_pieces = attend_pieces(
        {attended(keys, 0), attended(keys, 1)}, in_pieces(local.gate_logits), config_, effective);
    out = join(of_pieces[0], of_pieces[1]);
  }
  out.record = record;
  out.ran = record->rows();
  return out;
}

}  // namespace nsa::train
