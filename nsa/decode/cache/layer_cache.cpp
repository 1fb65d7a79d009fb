#include "nsa/decode/cache/layer_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "nsa/decode/step/active_sequences.h"
#include "nsa/decode/step/graph_capture.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

const ArgumentCheck kCheck("DecodeCache");

NsaConfig checked(const NsaConfig& config, int64_t num_sequences, int64_t capacity,
                  const LayerCacheOptions& memory) {
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
                     int64_t spare, const LayerCacheOptions& memory, at::TensorOptions options) {
  const int64_t wanted = memory.page_size > 0 ? memory.page_size : config.sel_block_size;
  const bool paged = memory.layout == CacheLayout::kPaged;
  const int64_t page = std::max<int64_t>(1, paged ? wanted : capacity);
  const auto pages_of = [&](int64_t rows) { return rows / page + (rows % page != 0 ? 1 : 0); };
  const int64_t all = num_sequences * pages_of(capacity);
  const int64_t pages = paged && pool > 0 ? std::min(all, pages_of(pool) + spare) : all;
  return PagedRows(config, num_sequences, capacity, page, pages, options);
}

/// A ring has a slot at least; of no window it is never read.
int64_t window_slots(const NsaConfig& config, int64_t capacity) {
  const int64_t wanted = config.window == 0 ? 1 : config.window + kSpareSlots;
  return std::max<int64_t>(1, std::min(wanted, capacity));
}

/// Half turns a position of each pair of columns, fp64 [dk / 2].
at::Tensor half_turns(const NsaConfig& config) {
  const at::Tensor exponent = at::arange(0, config.qk_head_dim, 2, at::kDouble)
                                  .mul_(-1.0 / static_cast<double>(config.qk_head_dim));
  return at::pow(at::Scalar(config.rope_base), exponent).div_(M_PI);
}

/// The same on a device, copied there once: calls over a caller's caches make no copy of their own.
at::Tensor half_turns_on(const NsaConfig& config, at::Device device) {
  using Key = std::tuple<int64_t, double, int>;
  static std::mutex mutex;
  static auto& copies = *new std::map<Key, at::Tensor>;  // never freed: CUDA may end before it
  if (!device.is_cuda()) return half_turns(config);
  const std::lock_guard lock(mutex);
  at::Tensor& copy = copies[Key{config.qk_head_dim, config.rope_base, device.index()}];
  if (copy.defined()) return copy;
  TORCH_CHECK(!is_capturing(),
              "nsa::DecodeCache: the first call with a head dimension and rope_base cannot be "
              "captured in a CUDA graph; run it once before the capture");
  return copy = half_turns(config).to(device);
}

/// N_c of each length, on its device.
at::Tensor num_compressed(const at::Tensor& num_tokens, const NsaConfig& config) {
  return num_tokens.add(config.block_stride - config.block_size)
      .floor_divide_(config.block_stride)
      .clamp_min_(0);
}

DecodeCounters make_counters(const NsaConfig& config, int64_t num_sequences,
                             at::TensorOptions options) {
  const auto counter = [&](at::IntArrayRef shape) {
    return at::zeros(shape, options.dtype(at::kLong));
  };
  const int64_t heads = config.num_kv_heads;
  return {counter({num_sequences, heads}), counter({num_sequences, heads, 3}),
          counter({num_sequences, heads, 3})};
}

}  // namespace

// Every sequence may leave one page of blocks partly empty; with that many pages to spare the pool
// of tokens is always the one that runs out first.
LayerCache::LayerCache(const NsaConfig& config, int64_t num_sequences, int64_t capacity,
                       at::TensorOptions options, const LayerCacheOptions& memory)
    : config_(checked(config, num_sequences, capacity, memory)),
      capacity_(capacity),
      options_(options),
      selected_(
          paged_rows(config, num_sequences, capacity, memory.pool_tokens, 0, memory, options)),
      compressed_(paged_rows(config, num_sequences, config.num_compressed(capacity),
                             memory.pool_tokens / config.block_stride, num_sequences, memory,
                             options)),
      window_(config, num_sequences, window_slots(config, capacity), options),
      source_(config, num_sequences, config.block_size + kSpareSlots, options),
      num_tokens_(static_cast<size_t>(num_sequences), 0),
      num_blocks_(num_tokens_),
      num_tokens_device_(at::zeros({num_sequences}, options.dtype(at::kLong))),
      num_blocks_device_(num_tokens_device_.clone()),
      all_sequences_(at::arange(num_sequences, options.dtype(at::kLong))),
      arrivals_(at::zeros({num_sequences}, options.dtype(at::kInt))),
      half_turns_(half_turns(config).to(options.device())) {
  if (memory.wide_rows) {
    for (KvRows* rows : {&selected_.kv, &compressed_.kv, &window_.kv, &source_.kv}) rows->widen();
  }
  counters_ = make_counters(config, num_sequences, options);
}

LayerCache::LayerCache(const NsaConfig& config, const CacheMemory& memory)
    : config_(config),
      capacity_(memory.page_table.size(1) * memory.page_size),
      lengths_known_(!memory.num_tokens_on_host.empty()),
      options_(memory.window.k.options()),
      selected_(memory.selected, memory.page_size, memory.page_table, !lengths_known_),
      compressed_(memory.compressed, memory.block_page_size, memory.block_page_table,
                  !lengths_known_),
      window_(memory.window, memory.window.k.size(0) / memory.num_tokens.size(0),
              memory.num_tokens_on_host),
      source_(memory.source, memory.source.k.size(0) / memory.num_tokens.size(0),
              memory.num_tokens_on_host),
      num_tokens_(lengths_known_
                      ? memory.num_tokens_on_host
                      : std::vector<int64_t>(static_cast<size_t>(memory.num_tokens.size(0)),
                                             std::max<int64_t>(0, capacity_ - memory.new_tokens))),
      num_tokens_device_(memory.num_tokens),
      all_sequences_(at::arange(memory.num_tokens.size(0), options_.dtype(at::kLong))),
      arrivals_(at::zeros({memory.num_tokens.size(0)}, options_.dtype(at::kInt))),
      half_turns_(half_turns_on(config, options_.device())) {
  for (const int64_t tokens : num_tokens_) num_blocks_.push_back(config_.num_compressed(tokens));
  num_blocks_device_ =
      lengths_known_ ? on_device(num_blocks_) : num_compressed(num_tokens_device_, config_);
  counters_ = make_counters(config_, num_sequences(), options_);
}

at::Tensor LayerCache::on_device(const std::vector<int64_t>& values) const {
  const at::Tensor host = at::tensor(values, at::kLong);
  if (!all_sequences_.is_cuda()) return host;
  return host.pin_memory().to(all_sequences_.device(), /*non_blocking=*/true);
}

void LayerCache::require_room(const std::vector<int64_t>& sequences,
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

void LayerCache::reserve(int64_t num_tokens) {
  std::vector<int64_t> all, added;
  for (int64_t id = 0; id < num_sequences(); ++id) {
    all.push_back(id);
    added.push_back(std::max<int64_t>(0, num_tokens - this->num_tokens(id)));
  }
  require_room(all, added);
  if (!order_device_.defined()) put_order(longest_first(num_tokens_));  // what a graph captures
  for (const int64_t id : all) {
    selected_.reserve(id, std::max(num_tokens, this->num_tokens(id)));
    compressed_.reserve(id, config_.num_compressed(std::max(num_tokens, this->num_tokens(id))));
  }
}

void LayerCache::check_tokens(const NsaInputs& tokens, int64_t batch) const {
  check_inputs("DecodeCache", tokens, config_);
  if (tokens.cu_seqlens.defined()) {
    kCheck.fail("cu_seqlens", "undefined (a cache holds batched sequences)", "a tensor");
  }
  kCheck.sizes("q", tokens.q, {batch, -1, -1, -1}, "[sequences, S, Hq, dk]");
  if (tokens.q.scalar_type() != window_.kv.type) {
    kCheck.fail("q", std::string(c10::toString(window_.kv.type)) + " like the cache",
                c10::toString(tokens.q.scalar_type()));
  }
  kCheck.same_device("q", tokens.q, "the cache", window_.kv.k);
}

void LayerCache::reset(int64_t sequence) {
  const auto place = static_cast<size_t>(sequence);
  if (sequence < 0 || sequence >= num_sequences()) {
    kCheck.fail("sequence", "in 0.." + std::to_string(num_sequences() - 1),
                std::to_string(sequence));
  }
  num_tokens_[place] = num_blocks_[place] = 0;
  for (const at::Tensor& x : {num_tokens_device_, num_blocks_device_, counters_.emission_reads,
                              counters_.padding_loads, counters_.second_pass_reads}) {
    x.select(0, sequence).zero_();
  }
  selected_.release(sequence);
  compressed_.release(sequence);
  window_.clear(sequence);
  source_.clear(sequence);
}

void LayerCache::truncate(int64_t sequence, int64_t num_tokens) {
  if (sequence < 0 || sequence >= num_sequences()) {
    kCheck.fail("sequence", "in 0.." + std::to_string(num_sequences() - 1),
                std::to_string(sequence));
  }
  const std::string of = " of sequence " + std::to_string(sequence);
  const auto place = static_cast<size_t>(sequence);
  const int64_t before = num_tokens_[place], dropped = before - num_tokens;
  if (num_tokens < 0 || dropped < 0) {
    kCheck.fail("num_tokens" + of, "in 0.." + std::to_string(before), std::to_string(num_tokens));
  }
  // The next token attends the window and may end a block: beside itself they need this many.
  int64_t most = dropped;
  for (const auto& [ring, needed] :
       {std::pair{&window_, config_.window - 1}, {&source_, config_.block_size - 1}}) {
    const int64_t size = ring->size(sequence);
    if (needed > 0 && size < before) most = std::min(most, size - needed);
  }
  if (dropped > most) {
    kCheck.fail("num_tokens" + of,
                "at least " + std::to_string(before - most) + ", as the caches of its window and " +
                    "of the latest tokens hold no older ones (reset it and prefill again)",
                std::to_string(num_tokens));
  }
  num_tokens_[place] = num_tokens;
  num_blocks_[place] = config_.num_compressed(num_tokens);
  num_tokens_device_.select(0, sequence).fill_(num_tokens);
  num_blocks_device_.select(0, sequence).fill_(num_blocks_[place]);
  window_.shrink(sequence, dropped);
  source_.shrink(sequence, dropped);
}

std::pair<at::Tensor, at::Tensor> LayerCache::blocks(int64_t sequence) const {
  const at::Tensor rows =
      compressed_.rows(all_sequences_.narrow(0, sequence, 1),
                       at::arange(num_blocks(sequence), all_sequences_.options()));
  const auto copy = [&](const at::Tensor& x) {
    return x.index_select(0, rows).to(compressed_.kv.type);
  };
  return {copy(compressed_.kv.k), copy(compressed_.kv.v)};
}

int64_t LayerCache::bytes() const {
  return selected_.kv.bytes() + compressed_.kv.bytes() + window_.kv.bytes() + source_.kv.bytes();
}

}  // namespace nsa
