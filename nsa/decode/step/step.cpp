// One decode step: append, emit, attend.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "nsa/decode/cache/emit_block.h"
#include "nsa/decode/output_rows.h"
#include "nsa/decode/step/active_sequences.h"
#include "nsa/decode/step/graph_capture.h"
#include "nsa/decode/step/loaded_attention.h"
#include "nsa/decode/step/loaded_positions.h"
#include "nsa/decode/step/loaded_selected.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/record_stage.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/select/positions.h"
#include "nsa/ops/select/scores.h"
#include "nsa/ops/select/top_n.h"

namespace nsa {

struct LayerCache::StepLoads {
  LoadCount cmp, sel, win;
  at::Tensor each(at::Tensor LoadCount::* member) const {
    return at::stack({cmp.*member, sel.*member, win.*member}, -1);
  }
};

LayerCache::Active LayerCache::activate(
    const std::optional<std::vector<int64_t>>& sequences) const {
  Active active;
  if (sequences) {
    std::vector<bool> seen(num_tokens_.size(), false);
    for (const int64_t id : *sequences) {
      const bool fresh = id >= 0 && id < num_sequences() && !seen[static_cast<size_t>(id)];
      if (!fresh) {
        ArgumentCheck("DecodeCache")
            .fail("sequences", "different numbers in 0.." + std::to_string(num_sequences() - 1),
                  std::to_string(id));
      }
      seen[static_cast<size_t>(id)] = true;
    }
    active.ids = *sequences;
    active.sequence = on_device(active.ids);
  } else {
    for (int64_t id = 0; id < num_sequences(); ++id) active.ids.push_back(id);
    active.sequence = all_sequences_;
  }
  return active;
}

namespace {

/// What attends to compressed blocks and the window is neither of the backends for whole tensors;
/// asking for another than the plain one is recorded, or refused. `fused` is the one launch.
void record_requests(const NsaOptions& options, const std::string& obstacle,
                     const std::string& cpu_obstacle, int64_t window) {
  const auto note = [&](const char* stage, BranchBackend requested) {
    const std::string reason = requested == BranchBackend::kPlain   ? ""
                               : requested == BranchBackend::kFused ? obstacle
                               : requested == BranchBackend::kCpu
                                   ? cpu_obstacle
                                   : "a decode step loads from its caches";
    record_backend(stage, to_string(requested), "cache", "", reason, options.strict_backend);
  };
  const NsaOptions wanted = options.effective();
  note("cmp_attn", wanted.cmp);
  if (window > 0) note("win_attn", wanted.win);
}

/// The pairs at positions [A, 1 or Hkv, L] of the sequences [A].
template <typename Store>
LoadedKv load_from(const Store& store, const at::Tensor& sequence, const at::Tensor& positions,
                   LoadCount& count) {
  return load(store.kv, store.rows(sequence.view({-1, 1, 1}), positions), count);
}

/// Every interval [A, 1, Hkv, K, 2] ends at t + 1 or before. Synchronises.
void check_causal(const at::Tensor& ranges, const at::Tensor& t) {
  const at::Tensor ends = ranges.select(-1, 1).gt(t.add(1).view({-1, 1, 1, 1}));
  if (ends.any().item<bool>()) {
    ArgumentCheck("DecodeCache").fail("end of a range", "at most t + 1", "a later token");
  }
}

}  // namespace

void LayerCache::set_last(Active& active, int64_t new_tokens) const {
  active.last = 0;
  for (const int64_t id : active.ids)
    active.last = std::max(active.last, num_tokens(id) + new_tokens - 1);
}

int64_t LayerCache::tokens_at_once(const NsaInputs& tokens, Active active,
                                   const NsaOptions& options) const {
  const int64_t count = std::min({tokens.q.size(1), kMostNewTokens, config_.block_stride});
  if (count == 1) return 1;
  set_last(active, count);
  return one_launch_obstacle(narrow_tokens(tokens, 0, count), active, options).empty() ? count : 1;
}

DecodeOutputs LayerCache::step(const NsaInputs& tokens, const NsaOptions& options,
                               const std::optional<std::vector<int64_t>>& sequences) {
  const ArgumentCheck check("DecodeCache");
  Active active = activate(sequences);
  const auto batch = static_cast<int64_t>(active.ids.size());
  check_tokens(tokens, batch);
  const int64_t count = tokens.q.size(1);
  check.at_least("tokens of a step (axis 1 of q)", count, 1);
  if (options.block_idx.defined()) {
    check.sizes("block_idx", options.block_idx, {batch, count, config_.num_kv_heads, -1},
                "[sequences, S, Hkv, n]");
    check_ids_type(check, options.block_idx);
    check.same_device("block_idx", options.block_idx, "q", tokens.q);
  }
  require_room(active.ids, std::vector<int64_t>(active.ids.size(), count));
  const int64_t at_once = tokens_at_once(tokens, active, options);
  if (at_once == count) return step_at_once(tokens, active, options);
  TORCH_CHECK_NOT_IMPLEMENTED(!tokens.q.is_cuda() || !is_capturing(), "nsa::DecodeCache: of ",
                              count, " tokens a step takes ", at_once,
                              " at once here; capture a step of so many");
  OutputRows rows(batch, count);
  std::vector<int64_t> places(active.ids.size());
  std::iota(places.begin(), places.end(), 0);
  for (int64_t first = 0; first < count; first += at_once) {
    const int64_t own = std::min(at_once, count - first);
    const auto part = [&](const at::Tensor& x) { return x.narrow(1, first, own); };
    rows.add(step_at_once(map_tokens(tokens, part), active, map_tokens(options, part)), places,
             std::vector<int64_t>(places.size(), first), std::vector<int64_t>(places.size(), own));
  }
  return rows.join(active.last / config_.sel_block_size + 1);
}

DecodeOutputs LayerCache::step_at_once(const NsaInputs& tokens, Active& active,
                                       const NsaOptions& options) {
  const NvtxRange range("nsa.decode_step", options.nvtx);
  const auto record = c10::make_intrusive<RunRecord>(options.sdpa_audit, current_record());
  const RunRecordScope scope(record);
  set_last(active, tokens.q.size(1));
  const std::string obstacle = one_launch_obstacle(tokens, active, options);
  TORCH_CHECK_NOT_IMPLEMENTED(
      lengths_known_ || obstacle.empty(),
      "nsa::decode_: only a step that is one launch can be captured in a CUDA graph: ", obstacle);
  DecodeOutputs out = obstacle.empty() ? step_in_one_launch(tokens, active, options)
                                       : plain_step(tokens, active, options, obstacle);
  out.record = record;
  out.ran = record->rows();
  return out;
}

DecodeOutputs LayerCache::plain_step(const NsaInputs& tokens, Active& active,
                                     const NsaOptions& options, const std::string& obstacle) {
  const std::string cpu_obstacle = cpu_step_obstacle(tokens, options);
  if (!cpu_obstacle.empty()) record_requests(options, obstacle, cpu_obstacle, config_.window);
  active.t = num_tokens_device_.index_select(0, active.sequence);
  const RotatedTokens rotated = rotate_tokens(tokens, active.t.unsqueeze(1), config_);
  append(tokens, rotated, active);
  emit(tokens, active);
  return cpu_obstacle.empty() ? attend_by_cpu_kernels(tokens, rotated.q, active)
                              : attend(tokens, rotated.q, active, options);
}

void LayerCache::grow(const std::vector<int64_t>& sequences, int64_t new_tokens) {
  for (const int64_t id : sequences) {
    selected_.reserve(id, num_tokens_[static_cast<size_t>(id)] += new_tokens);
    window_.grow(id, new_tokens);
    source_.grow(id, new_tokens);
  }
}

void LayerCache::append(const NsaInputs& tokens, const RotatedTokens& rotated,
                        const Active& active) {
  grow(active.ids, 1);
  const auto row = [](const at::Tensor& x) { return x.squeeze(1); };
  selected_.kv.write(selected_.rows(active.sequence, active.t), row(rotated.k_sel),
                     row(tokens.v_sel));
  window_.kv.write(window_.rows(active.sequence, active.t), row(rotated.k_win), row(tokens.v_win));
  source_.kv.write(source_.rows(active.sequence, active.t), row(rotated.k_cmp_src),
                   row(tokens.v_cmp_src));
  num_tokens_device_.index_copy_(0, active.sequence, active.t.add(1));
}

// A block is complete when the ring holds its l tokens and a stride ends with a new one.
std::vector<int64_t> LayerCache::grow_blocks(const std::vector<int64_t>& sequences,
                                             int64_t new_tokens) {
  std::vector<int64_t> ids;
  for (const int64_t id : sequences) {
    const int64_t ended = config_.num_compressed(num_tokens(id)) -
                          config_.num_compressed(num_tokens(id) - new_tokens);
    if (ended == 0 || source_.size(id) < config_.block_size) continue;
    compressed_.reserve(id, num_blocks_[static_cast<size_t>(id)] += ended);
    ids.push_back(id);
  }
  return ids;
}

void LayerCache::emit(const NsaInputs& tokens, const Active& active) {
  const std::vector<int64_t> ids = grow_blocks(active.ids, 1);
  if (ids.empty()) return;
  const at::Tensor sequence = ids == active.ids ? active.sequence : on_device(ids);
  const at::Tensor last = num_tokens_device_.index_select(0, sequence).sub_(1);
  const at::Tensor block = num_blocks_device_.index_select(0, sequence);
  LoadCount count;
  const LoadedKv source =
      load_from(source_, sequence, last_positions(last, config_.block_size), count);
  record_stage("compress", "plain");
  const auto [k, v] = emit_block(source, block, tokens.phi_k, tokens.phi_v, config_);
  compressed_.kv.write(compressed_.rows(sequence, block), k, v);
  num_blocks_device_.index_copy_(0, sequence, block.add(1));
  counters_.emission_reads.index_add_(0, sequence, count.loaded);
}

DecodeOutputs LayerCache::attend(const NsaInputs& tokens, const at::Tensor& q_rot,
                                 const Active& active, const NsaOptions& options) {
  DecodeOutputs out;
  StepLoads loads;
  out.q_rot = q_rot;
  attend_compressed(active, loads, options, out);
  {
    const NvtxRange range("nsa.sel_attn", options.nvtx);
    attend_selected(active, loads, options, out);
  }
  {
    const NvtxRange range("nsa.win_attn", options.nvtx);
    attend_window(active, loads, out);
  }
  out.gates = gate_activate(tokens.gate_logits, config_.gate);
  record_stage("gate", gate_combine_backend(out.o_cmp, out.gates));
  out.o = gate_combine(out.o_cmp, out.o_sel, out.o_win, out.gates);
  out.reads = loads.each(&LoadCount::loaded).unsqueeze(1);
  counters_.padding_loads.index_add_(0, active.sequence, loads.each(&LoadCount::masked));
  counters_.second_pass_reads.index_add_(0, active.sequence, loads.each(&LoadCount::repeated));
  return out;
}

void LayerCache::attend_compressed(const Active& active, StepLoads& loads,
                                   const NsaOptions& options, DecodeOutputs& out) const {
  const NvtxRange range("nsa.cmp_attn+select", options.nvtx);
  int64_t width = 0;
  for (const int64_t id : active.ids) width = std::max(width, num_blocks(id));
  const at::Tensor blocks =
      first_positions(num_blocks_device_.index_select(0, active.sequence), width);
  const LoadedAttention cmp = attend_loaded(
      out.q_rot, load_from(compressed_, active.sequence, blocks, loads.cmp), config_.cmp_scale());
  out.o_cmp = cmp.out;
  out.lse_cmp = cmp.lse;
  const bool given = options.block_idx.defined();
  const at::Tensor t = active.t.unsqueeze(1);
  at::Tensor scores;
  if (!given || options.keep_scores) {
    scores = block_scores(cmp.group_probs, active.last / config_.sel_block_size + 1, config_);
  }
  if (options.keep_scores) out.scores = scores;
  if (given) {
    const BlockSet set = block_set(options.block_idx, t, config_.sel_block_size);
    out.block_idx = set.block_idx;
    out.dropped_ids = set.outside;
  } else {
    out.block_idx = select_blocks(scores, t, config_);
  }
  record_stage("select", given ? "given" : "plain");
  out.ranges = block_ranges(options.ranges, out.block_idx, t, config_.sel_block_size);
  record_stage("ranges", to_string(options.ranges));
  if (options.strict_asserts) check_causal(out.ranges, active.t);
}

void LayerCache::attend_selected(const Active& active, StepLoads& loads, const NsaOptions& options,
                                 DecodeOutputs& out) const {
  const int64_t width = std::min(out.ranges.size(3) * config_.sel_block_size, active.last + 1);
  const at::Tensor tokens = range_positions(out.ranges.squeeze(1), active.t, width);
  const LoadedKv kv = load_from(selected_, active.sequence, tokens, loads.sel);
  const NsaOptions wanted = options.effective();
  std::tie(out.o_sel, out.lse_sel) = attend_loaded_selected(
      out.q_rot, kv, {wanted.sel, wanted.safe_pack, wanted.strict_backend}, config_.sel_scale());
}

void LayerCache::attend_window(const Active& active, StepLoads& loads, DecodeOutputs& out) const {
  if (config_.window == 0) record_stage("win_attn", "off");
  const int64_t width = std::min(config_.window, active.last + 1);
  const at::Tensor tokens = last_positions(active.t, width);
  const LoadedAttention win = attend_loaded(
      out.q_rot, load_from(window_, active.sequence, tokens, loads.win), config_.win_scale());
  out.o_win = win.out;
  out.lse_win = win.lse;
}

}  // namespace nsa
