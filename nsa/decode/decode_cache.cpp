#include "nsa/decode/decode_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "nsa/core/check.h"
#include "nsa/core/nvtx_range.h"
#include "nsa/decode/emit_block.h"
#include "nsa/decode/lanes.h"
#include "nsa/decode/row_attention.h"
#include "nsa/gate/gate.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/select/scores.h"
#include "nsa/select/top_n.h"

namespace nsa {
namespace {

const ArgumentCheck kCheck("DecodeCache");

NsaConfig checked(const NsaConfig& config, int64_t num_sequences, int64_t capacity,
                  const DecodeCacheOptions& memory) {
  config.validate();
  kCheck.at_least("num_sequences", num_sequences, 0);
  kCheck.at_least("capacity", capacity, 0);
  kCheck.at_least("page_size", memory.page_size, 0);
  kCheck.at_least("pool_tokens", memory.pool_tokens, 0);
  return config;
}

/// Room for up to `capacity` rows a sequence and `pool` rows together (0: no limit of its own);
/// `spare` pages on top of the pool.
PagedRows paged_rows(const NsaConfig& config, int64_t num_sequences, int64_t capacity, int64_t pool,
                     int64_t spare, const DecodeCacheOptions& memory, at::TensorOptions options) {
  const int64_t wanted = memory.page_size > 0 ? memory.page_size : config.sel_block_size;
  const bool paged = memory.layout == CacheLayout::kPaged;
  const int64_t page = std::max<int64_t>(1, paged ? wanted : capacity);
  const auto pages_of = [&](int64_t rows) { return rows / page + (rows % page != 0 ? 1 : 0); };
  const int64_t all = num_sequences * pages_of(capacity);
  const int64_t pages = paged && pool > 0 ? std::min(all, pages_of(pool) + spare) : all;
  return PagedRows(config, num_sequences, capacity, page, pages, options);
}

}  // namespace

struct DecodeCache::Active {
  std::vector<int64_t> ids;
  int64_t last = 0;     ///< largest t of the step
  at::Tensor sequence;  ///< [A] ids on the device
  at::Tensor t;         ///< [A] position of the new token
};

struct DecodeCache::StepLoads {
  LoadCount cmp, sel, win;
  at::Tensor each(at::Tensor LoadCount::* member) const {
    return at::stack({cmp.*member, sel.*member, win.*member}, -1);
  }
};

// Every sequence may leave one page of blocks partly empty; with that many pages to spare the pool
// of tokens is always the one that runs out first.
DecodeCache::DecodeCache(const NsaConfig& config, int64_t num_sequences, int64_t capacity,
                         at::TensorOptions options, const DecodeCacheOptions& memory)
    : config_(checked(config, num_sequences, capacity, memory)),
      capacity_(capacity),
      options_(options),
      selected_(
          paged_rows(config, num_sequences, capacity, memory.pool_tokens, 0, memory, options)),
      compressed_(paged_rows(config, num_sequences, config.num_compressed(capacity),
                             memory.pool_tokens / config.block_stride, num_sequences, memory,
                             options)),
      window_(config, num_sequences, std::min(config.window, std::max<int64_t>(1, capacity)),
              options),
      source_(config, num_sequences, config.block_size, options),
      num_tokens_(static_cast<size_t>(num_sequences), 0),
      num_blocks_(num_tokens_),
      num_tokens_device_(at::zeros({num_sequences}, options.dtype(at::kLong))),
      num_blocks_device_(num_tokens_device_.clone()),
      all_sequences_(at::arange(num_sequences, options.dtype(at::kLong))) {
  const auto counter = [&](at::IntArrayRef shape) {
    return at::zeros(shape, options.dtype(at::kLong));
  };
  const int64_t heads = config.num_kv_heads;
  counters_ = {counter({num_sequences, heads}), counter({num_sequences, heads, 3}),
               counter({num_sequences, heads, 3})};
}

at::Tensor DecodeCache::on_device(const std::vector<int64_t>& values) const {
  const at::Tensor host = at::tensor(values, at::kLong);
  if (!all_sequences_.is_cuda()) return host;
  return host.pin_memory().to(all_sequences_.device(), /*non_blocking=*/true);
}

DecodeCache::Active DecodeCache::activate(
    const std::optional<std::vector<int64_t>>& sequences) const {
  Active active;
  if (sequences) {
    std::vector<bool> seen(num_tokens_.size(), false);
    for (const int64_t id : *sequences) {
      const bool fresh = id >= 0 && id < num_sequences() && !seen[static_cast<size_t>(id)];
      if (!fresh) {
        kCheck.fail("sequences", "different numbers in 0.." + std::to_string(num_sequences() - 1),
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
  for (const int64_t id : active.ids) active.last = std::max(active.last, num_tokens(id));
  active.t = num_tokens_device_.index_select(0, active.sequence);
  return active;
}

void DecodeCache::require_room(const std::vector<int64_t>& sequences,
                               const std::vector<int64_t>& added) const {
  int64_t pages = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t want = num_tokens(sequences[i]) + added[i];
    if (want > capacity_) {
      kCheck.fail("tokens of sequence " + std::to_string(sequences[i]),
                  "at most capacity = " + std::to_string(capacity_) +
                      " (make the cache larger or reset the sequence)",
                  std::to_string(want));
    }
    pages += selected_.pages_missing(sequences[i], want);
  }
  if (pages > selected_.free_pages()) {
    kCheck.fail("pages of " + std::to_string(selected_.page_size()) + " tokens",
                "at most the " + std::to_string(selected_.free_pages()) +
                    " free ones (raise pool_tokens or reset a sequence)",
                std::to_string(pages));
  }
}

void DecodeCache::check_tokens(const NsaInputs& tokens, int64_t batch) const {
  check_inputs("DecodeCache", tokens, config_);
  if (tokens.cu_seqlens.defined()) {
    kCheck.fail("cu_seqlens", "undefined (a cache holds batched sequences)", "a tensor");
  }
  kCheck.sizes("q", tokens.q, {batch, -1, -1, -1}, "[sequences, S, Hq, dk]");
  kCheck.same_dtype("q", tokens.q, "the cache", window_.kv.k);
  kCheck.same_device("q", tokens.q, "the cache", window_.kv.k);
}

DecodeOutputs DecodeCache::step(const NsaInputs& tokens, const NsaOptions& options,
                                const std::optional<std::vector<int64_t>>& sequences) {
  const NvtxRange range("nsa.decode_step", options.nvtx);
  const Active active = activate(sequences);
  const auto batch = static_cast<int64_t>(active.ids.size());
  check_tokens(tokens, batch);
  kCheck.sizes("q", tokens.q, {batch, 1, -1, -1}, "[sequences, 1, Hq, dk] of a step");
  require_room(active.ids, std::vector<int64_t>(active.ids.size(), 1));
  const RotatedTokens rotated = rotate_tokens(tokens, active.t.unsqueeze(1), config_);
  append(tokens, rotated, active);
  emit(tokens, active);
  return attend(tokens, rotated.q, active, options);
}

void DecodeCache::append(const NsaInputs& tokens, const RotatedTokens& rotated,
                         const Active& active) {
  for (const int64_t id : active.ids) {
    selected_.reserve(id, ++num_tokens_[static_cast<size_t>(id)]);
    window_.grow(id, 1);
    source_.grow(id, 1);
  }
  const auto row = [](const at::Tensor& x) { return x.squeeze(1); };
  selected_.kv.write(selected_.rows(active.sequence, active.t), row(rotated.k_sel),
                     row(tokens.v_sel));
  window_.kv.write(window_.rows(active.sequence, active.t), row(rotated.k_win), row(tokens.v_win));
  source_.kv.write(source_.rows(active.sequence, active.t), row(rotated.k_cmp_src),
                   row(tokens.v_cmp_src));
  num_tokens_device_.index_copy_(0, active.sequence, active.t.add(1));
}

// A block is complete when the ring holds its l tokens and its last one is the newest.
void DecodeCache::emit(const NsaInputs& tokens, const Active& active) {
  std::vector<int64_t> ids;
  for (const int64_t id : active.ids) {
    const int64_t first = num_tokens(id) - config_.block_size;
    if (source_.size(id) == config_.block_size && first % config_.block_stride == 0) {
      ids.push_back(id);
    }
  }
  if (ids.empty()) return;
  const at::Tensor sequence = ids == active.ids ? active.sequence : on_device(ids);
  const at::Tensor last = num_tokens_device_.index_select(0, sequence).sub_(1);
  const at::Tensor block = num_blocks_device_.index_select(0, sequence);
  LoadCount count;
  const LoadedKv source =
      load(source_.kv,
           source_.rows(sequence.view({-1, 1, 1}), last_lanes(last, config_.block_size)), count);
  const auto [k, v] = emit_block(source, block, tokens.phi_k, tokens.phi_v, config_);
  for (const int64_t id : ids) compressed_.reserve(id, ++num_blocks_[static_cast<size_t>(id)]);
  compressed_.kv.write(compressed_.rows(sequence, block), k, v);
  num_blocks_device_.index_copy_(0, sequence, block.add(1));
  counters_.emission_reads.index_add_(0, sequence, count.loaded);
}

DecodeOutputs DecodeCache::attend(const NsaInputs& tokens, const at::Tensor& q_rot,
                                  const Active& active, const NsaOptions& options) {
  DecodeOutputs out;
  StepLoads loads;
  out.q_rot = q_rot;
  attend_compressed(active, loads, options, out);
  attend_selected(active, loads, out);
  attend_window(active, loads, out);
  out.gates = gate_activate(tokens.gate_logits, config_.gate);
  out.o = gate_combine(out.o_cmp, out.o_sel, out.o_win, out.gates);
  out.reads = loads.each(&LoadCount::loaded).unsqueeze(1);
  counters_.masked_lanes.index_add_(0, active.sequence, loads.each(&LoadCount::masked));
  counters_.second_pass_reads.index_add_(0, active.sequence, loads.each(&LoadCount::repeated));
  return out;
}

void DecodeCache::attend_compressed(const Active& active, StepLoads& loads,
                                    const NsaOptions& options, DecodeOutputs& out) const {
  int64_t width = 0;
  for (const int64_t id : active.ids) width = std::max(width, num_blocks(id));
  const at::Tensor blocks = first_lanes(num_blocks_device_.index_select(0, active.sequence), width);
  const RowAttention cmp = row_attention(
      out.q_rot,
      load(compressed_.kv, compressed_.rows(active.sequence.view({-1, 1, 1}), blocks), loads.cmp));
  out.o_cmp = cmp.out;
  out.lse_cmp = cmp.lse;
  const bool given = options.block_idx.defined();
  const at::Tensor t = active.t.unsqueeze(1);
  at::Tensor scores;
  if (!given || options.keep_scores) {
    scores = block_scores(cmp.group_probs, active.last / config_.sel_block_size + 1, config_);
  }
  if (options.keep_scores) out.scores = scores;
  out.block_idx = given ? options.block_idx : select_blocks(scores, t, config_);
  out.ranges = block_ranges(options.ranges, out.block_idx, t, config_.sel_block_size);
}

void DecodeCache::attend_selected(const Active& active, StepLoads& loads,
                                  DecodeOutputs& out) const {
  const int64_t width = std::min(out.ranges.size(3) * config_.sel_block_size, active.last + 1);
  const at::Tensor tokens = range_lanes(out.ranges.squeeze(1), active.t, width);
  const RowAttention sel = row_attention(
      out.q_rot,
      load(selected_.kv, selected_.rows(active.sequence.view({-1, 1, 1}), tokens), loads.sel));
  out.o_sel = sel.out;
  out.lse_sel = sel.lse;
}

void DecodeCache::attend_window(const Active& active, StepLoads& loads, DecodeOutputs& out) const {
  const int64_t width = std::min(config_.window, active.last + 1);
  const at::Tensor tokens = last_lanes(active.t, width);
  const RowAttention win = row_attention(
      out.q_rot,
      load(window_.kv, window_.rows(active.sequence.view({-1, 1, 1}), tokens), loads.win));
  out.o_win = win.out;
  out.lse_win = win.lse;
}

void DecodeCache::reset(int64_t sequence) {
  const auto place = static_cast<size_t>(sequence);
  if (sequence < 0 || sequence >= num_sequences()) {
    kCheck.fail("sequence", "in 0.." + std::to_string(num_sequences() - 1),
                std::to_string(sequence));
  }
  num_tokens_[place] = num_blocks_[place] = 0;
  for (const at::Tensor& x : {num_tokens_device_, num_blocks_device_, counters_.emission_reads,
                              counters_.masked_lanes, counters_.second_pass_reads}) {
    x.select(0, sequence).zero_();
  }
  selected_.release(sequence);
  compressed_.release(sequence);
  window_.clear(sequence);
  source_.clear(sequence);
}

std::pair<at::Tensor, at::Tensor> DecodeCache::blocks(int64_t sequence) const {
  const at::Tensor rows =
      compressed_.rows(all_sequences_.narrow(0, sequence, 1),
                       at::arange(num_blocks(sequence), all_sequences_.options()));
  return {compressed_.kv.k.index_select(0, rows), compressed_.kv.v.index_select(0, rows)};
}

int64_t DecodeCache::bytes() const {
  return selected_.kv.bytes() + compressed_.kv.bytes() + window_.kv.bytes() + source_.kv.bytes();
}

}  // namespace nsa
