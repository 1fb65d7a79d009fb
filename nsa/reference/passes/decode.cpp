#include "nsa/reference/passes/decode.h"

#include <algorithm>

#include "nsa/reference/passes/forward.h"
#include "nsa/reference/stages/rope.h"

namespace nsa::reference {
namespace {

/// The first `count` blocks of a cache [blocks,Hkv,D] as [1,count,Hkv,D].
Tensor<double> first_blocks(const Tensor<double>& cache, int64_t count) {
  Tensor<double> out({1, count, cache.size(1), cache.size(2)});
  for (int64_t i = 0; i < count; ++i) std::ranges::copy(cache.row(i), out.row(0, i).begin());
  return out;
}

/// Copies one sequence [1,L,...] into rows row.. of sequence b; the last axis may be narrower.
template <class T>
void copy_rows(const Tensor<T>& from, Tensor<T>& to, int64_t b, int64_t row) {
  const auto width = static_cast<size_t>(from.shape().back());
  const auto to_width = static_cast<size_t>(to.shape().back());
  for (int64_t t = 0; t < from.size(1); ++t) {
    const std::span<const T> source = from.row(0, t);
    const std::span<T> target = to.row(b, row + t);
    for (size_t i = 0; width > 0 && i < source.size(); ++i)
      target[i / width * to_width + i % width] = source[i];
  }
}

void copy_outputs(const Outputs& from, Outputs& to, int64_t b, int64_t row) {
  for (const auto member :
       {&Outputs::q_rot, &Outputs::p_cmp, &Outputs::scores, &Outputs::o_cmp, &Outputs::o_sel,
        &Outputs::o_win, &Outputs::o, &Outputs::lse_cmp, &Outputs::lse_sel, &Outputs::lse_win})
    copy_rows(from.*member, to.*member, b, row);
  copy_rows(from.block_idx, to.block_idx, b, row);
  copy_rows(from.ranges, to.ranges, b, row);
  copy_rows(from.reads, to.reads, b, row);
}

}  // namespace

DecodeCache::DecodeCache(const Config& c, PhiWeights phi_k, PhiWeights phi_v, int64_t capacity)
    : config_((validate(c), c)),
      phi_k_(std::move(phi_k)),
      phi_v_(std::move(phi_v)),
      capacity_(capacity),
      k_sel_({capacity, c.num_kv_heads, c.qk_head_dim}),
      v_sel_({capacity, c.num_kv_heads, c.v_head_dim}),
      k_cmp_({num_compressed(c, capacity), c.num_kv_heads, c.qk_head_dim}),
      v_cmp_({num_compressed(c, capacity), c.num_kv_heads, c.v_head_dim}),
      // A ring has a slot at least; of no window it is never read.
      window_(std::max<int64_t>(1, std::min(c.window, capacity)), c.num_kv_heads, c.qk_head_dim,
              c.v_head_dim),
      cmp_src_(c.block_size, c.num_kv_heads, c.qk_head_dim, c.v_head_dim) {
  check_phi_weights(c, phi_k_, c.qk_head_dim, "k");
  check_phi_weights(c, phi_v_, c.v_head_dim, "v");
}

void DecodeCache::check(const Inputs& tokens) const {
  Inputs x = tokens;
  x.phi_k = phi_k_;
  x.phi_v = phi_v_;
  check_inputs(config_, x);
  if (x.q.size(0) != 1) reject("decode", "B of one cache", "1", std::to_string(x.q.size(0)));
  if (num_tokens_ + x.q.size(1) > capacity_)
    reject("decode", "tokens", "at most capacity=" + std::to_string(capacity_),
           std::to_string(num_tokens_ + x.q.size(1)));
}

Outputs DecodeCache::prefill(const Inputs& tokens) {
  check(tokens);
  const int64_t length = tokens.q.size(1);
  if (num_tokens_ == 0) {
    Inputs x = tokens;
    x.phi_k = phi_k_;
    x.phi_v = phi_v_;
    Outputs out = forward(config_, x);
    fill(tokens, out);
    return out;
  }
  Outputs out = allocate_outputs(config_, 1, length, num_tokens_ + length);
  out.q_rot = Tensor<double>(tokens.q.shape());
  for (int64_t row = 0; row < length; ++row) {
    append(tokens, row);
    attend_last(tokens, row, out);
  }
  return out;
}

Outputs DecodeCache::step(const Inputs& token) {
  check(token);
  if (token.q.size(1) != 1) reject("decode", "S of a step", "1", std::to_string(token.q.size(1)));
  Outputs out = allocate_outputs(config_, 1, 1, num_tokens_ + 1);
  out.q_rot = Tensor<double>(token.q.shape());
  append(token, 0);
  attend_last(token, 0, out);
  return out;
}

void DecodeCache::append(const Inputs& x, int64_t row) {
  const int64_t t = num_tokens_++;
  std::ranges::copy(rotated(x.k_sel.row(0, row), t), k_sel_.row(t).begin());
  std::ranges::copy(x.v_sel.row(0, row), v_sel_.row(t).begin());
  window_.put(t, rotated(x.k_win.row(0, row), t), x.v_win.row(0, row));
  const std::span<const double> key = x.k_cmp_src.row(0, row);
  const bool before_pool = config_.rope == Rope::kBeforePool;
  cmp_src_.put(t, before_pool ? rotated(key, t) : std::vector<double>(key.begin(), key.end()),
               x.v_cmp_src.row(0, row));
  const int64_t behind = num_tokens_ - config_.block_size;
  if (behind >= 0 && behind % config_.block_stride == 0) emit_block();
}

void DecodeCache::emit_block() {
  const int64_t first = num_tokens_ - config_.block_size, block = first / config_.block_stride;
  for (int64_t j = 0; j < config_.num_kv_heads; ++j) {
    BlockTokens keys, values;
    for (int64_t t = first; t < num_tokens_; ++t) {
      const KeyValue pair = cmp_src_.at(t, j);
      ++emission_reads_;
      keys.push_back(pair.k);
      values.push_back(pair.v);
    }
    std::ranges::copy(pool(config_.phi, phi_k_, keys), k_cmp_.row(block, j).begin());
    std::ranges::copy(pool(config_.phi, phi_v_, values), v_cmp_.row(block, j).begin());
    key_after_pool(config_, k_cmp_.row(block, j), block);
  }
}

void DecodeCache::fill(const Inputs& x, const Outputs& batched) {
  const int64_t length = x.q.size(1);
  for (int64_t t = 0; t < length; ++t) {
    std::ranges::copy(rotated(x.k_sel.row(0, t), t), k_sel_.row(t).begin());
    std::ranges::copy(x.v_sel.row(0, t), v_sel_.row(t).begin());
  }
  for (int64_t t = std::max<int64_t>(0, length - config_.window); t < length; ++t)
    window_.put(t, rotated(x.k_win.row(0, t), t), x.v_win.row(0, t));
  for (int64_t t = std::max<int64_t>(0, length - config_.block_size); t < length; ++t) {
    const std::span<const double> key = x.k_cmp_src.row(0, t);
    const bool before_pool = config_.rope == Rope::kBeforePool;
    cmp_src_.put(t, before_pool ? rotated(key, t) : std::vector<double>(key.begin(), key.end()),
                 x.v_cmp_src.row(0, t));
  }
  for (int64_t i = 0; i < batched.k_cmp.size(1); ++i) {
    std::ranges::copy(batched.k_cmp.row(0, i), k_cmp_.row(i).begin());
    std::ranges::copy(batched.v_cmp.row(0, i), v_cmp_.row(i).begin());
  }
  num_tokens_ = length;
}

void DecodeCache::attend_last(const Inputs& x, int64_t row, Outputs& out) {
  const int64_t t = num_tokens_ - 1;
  std::ranges::copy(rotated(x.q.row(0, row), t), out.q_rot.row(0, row).begin());
  for (int64_t j = 0; j < config_.num_kv_heads; ++j) {
    const RowQuery query{.t = t,
                         .q = queries_of_row(config_, out.q_rot, 0, row, j),
                         .gates = gates_of_row(config_, x.gates, 0, row, j)};
    store_row(config_, evaluate_row(config_, query, sources(j)), 0, row, j, out);
  }
}

RowSources DecodeCache::sources(int64_t kv_head) const {
  return {KeyValueSource([this, kv_head](int64_t i) {
            return KeyValue{k_cmp_.row(i, kv_head), v_cmp_.row(i, kv_head)};
          }),
          KeyValueSource([this, kv_head](int64_t t) {
            return KeyValue{k_sel_.row(t, kv_head), v_sel_.row(t, kv_head)};
          }),
          KeyValueSource([this, kv_head](int64_t t) { return window_.at(t, kv_head); })};
}

std::vector<double> DecodeCache::rotated(std::span<const double> heads, int64_t position) const {
  std::vector<double> out(heads.begin(), heads.end());
  if (config_.rope == Rope::kNone) return out;
  const std::vector<double> frequency = rope_frequencies(config_.qk_head_dim, config_.rope_base);
  const auto dk = static_cast<size_t>(config_.qk_head_dim);
  for (size_t begin = 0; begin < out.size(); begin += dk)
    rotate(std::span(out).subspan(begin, dk), position, frequency, config_.rope_pairs);
  return out;
}

Tensor<double> DecodeCache::k_cmp() const {
  return first_blocks(k_cmp_, num_compressed(config_, num_tokens_));
}

Tensor<double> DecodeCache::v_cmp() const {
  return first_blocks(v_cmp_, num_compressed(config_, num_tokens_));
}

Outputs decode(const Config& c, const Inputs& x, const std::vector<int64_t>& prefill) {
  check_inputs(c, x);
  const int64_t B = x.q.size(0), S = x.q.size(1);
  if (static_cast<int64_t>(prefill.size()) != B)
    reject("decode", "prefill", std::to_string(B) + " lengths", std::to_string(prefill.size()));
  Outputs out = allocate_outputs(c, B, S, S);
  out.q_rot = Tensor<double>(x.q.shape());
  out.k_cmp = Tensor<double>({B, num_compressed(c, S), c.num_kv_heads, c.qk_head_dim});
  out.v_cmp = Tensor<double>({B, num_compressed(c, S), c.num_kv_heads, c.v_head_dim});
  for (int64_t b = 0; b < B; ++b) {
    const int64_t length = prefill[static_cast<size_t>(b)];
    const Inputs one = slice_sequence(x, b);
    DecodeCache cache(c, x.phi_k, x.phi_v, S);
    copy_outputs(cache.prefill(slice_tokens(one, 0, length)), out, b, 0);
    for (int64_t t = length; t < S; ++t)
      copy_outputs(cache.step(slice_tokens(one, t, t + 1)), out, b, t);
    copy_rows(cache.k_cmp(), out.k_cmp, b, 0);
    copy_rows(cache.v_cmp(), out.v_cmp, b, 0);
  }
  return out;
}

}  // namespace nsa::reference
