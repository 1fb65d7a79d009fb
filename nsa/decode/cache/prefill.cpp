// Prefill: many tokens at once through the batched operators, then into the caches.
#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "nsa/decode/cache/layer_cache.h"
#include "nsa/decode/output_rows.h"
#include "nsa/decode/sequential.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/select/positions.h"

namespace nsa {
namespace {

void check_lengths(const std::vector<int64_t>& lengths, int64_t batch, int64_t num_tokens) {
  const ArgumentCheck check("DecodeCache");
  if (static_cast<int64_t>(lengths.size()) != batch) {
    check.fail("lengths", std::to_string(batch) + " numbers, one a sequence",
               std::to_string(lengths.size()));
  }
  for (const int64_t length : lengths) {
    if (length < 0 || length > num_tokens) {
      check.fail("lengths", "in 0..S = " + std::to_string(num_tokens), std::to_string(length));
    }
  }
}

int64_t largest(const std::vector<int64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// Of the first lengths[i] rows of block_idx [A, S, Hkv, n]; the rows behind them are padding.
at::Tensor dropped_ids(const at::Tensor& block_idx, const std::vector<int64_t>& lengths,
                       const NsaConfig& config) {
  const at::Tensor t = at::arange(block_idx.size(1), block_idx.options().dtype(at::kLong));
  at::Tensor total = at::zeros({}, t.options());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const at::Tensor own = block_idx.select(0, static_cast<int64_t>(i)).narrow(0, 0, lengths[i]);
    total.add_(count_outside(own, t.narrow(0, 0, lengths[i]), config.sel_block_size));
  }
  return total;
}

}  // namespace

DecodeOutputs LayerCache::prefill(const NsaInputs& tokens, const std::vector<int64_t>& lengths,
                                  const NsaOptions& options) {
  const NvtxRange range("nsa.prefill", options.nvtx);
  check_tokens(tokens, num_sequences());
  check_lengths(lengths, num_sequences(), tokens.q.size(1));
  std::vector<int64_t> all, empty, longer;
  for (int64_t b = 0; b < num_sequences(); ++b) {
    all.push_back(b);
    if (lengths[static_cast<size_t>(b)] > 0) (num_tokens(b) == 0 ? empty : longer).push_back(b);
  }
  require_room(all, lengths);
  OutputRows rows(num_sequences(), tokens.q.size(1));
  const std::vector<int64_t> zeros(all.size(), 0);
  const auto lengths_of = [&](const std::vector<int64_t>& ids) {
    std::vector<int64_t> own;
    for (const int64_t id : ids) own.push_back(lengths[static_cast<size_t>(id)]);
    return own;
  };
  rows.add(prefill_empty(tokens, empty, lengths_of(empty), options), empty, zeros,
           lengths_of(empty));
  for (int64_t s = 0, count = 0; s < largest(lengths_of(longer)); s += count) {
    std::vector<int64_t> active;
    count = tokens.q.size(1) - s;
    for (const int64_t id : longer) {
      const int64_t left = lengths[static_cast<size_t>(id)] - s;
      if (left <= 0) continue;
      active.push_back(id);
      count = std::min(count, left);  // until one of them ends
    }
    const at::Tensor sequence = on_device(active);
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(1, s, count).index_select(0, sequence);
    };
    DecodeOutputs out = step(map_tokens(tokens, part), map_tokens(options, part), active);
    out.reads = at::Tensor();
    rows.add(out, active, std::vector<int64_t>(active.size(), s),
             std::vector<int64_t>(active.size(), count));
  }
  return rows.join(config_.num_sel_blocks(largest(num_tokens_)));
}

DecodeOutputs LayerCache::prefill_empty(const NsaInputs& tokens,
                                        const std::vector<int64_t>& sequences,
                                        const std::vector<int64_t>& lengths,
                                        const NsaOptions& options) {
  const int64_t longest = largest(lengths);
  const bool all = static_cast<int64_t>(sequences.size()) == num_sequences();
  const at::Tensor sequence = all ? all_sequences_ : on_device(sequences);
  const auto select = [&](const at::Tensor& x) {
    const at::Tensor upto = x.narrow(1, 0, longest);
    return all ? upto : upto.index_select(0, sequence);
  };
  const NsaInputs own = map_tokens(tokens, select);
  const NsaOptions own_options = map_tokens(options, select);
  DecodeOutputs out;
  // Without tokens the call gives shapes only: nothing ran that a record should name.
  const RunRecordScope scope(longest > 0 ? current_record() : c10::make_intrusive<RunRecord>());
  static_cast<NsaOutputs&>(out) = options.prefill_batched
                                      ? nsa_attention(own, config_, own_options)
                                      : sequential_attention(own, config_, own_options);
  const RotatedTokens rotated =
      rotate_tokens(own, at::arange(longest, all_sequences_.options()), config_);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const auto one = [&](const at::Tensor& x) { return x.select(0, row); };
    NsaOutputs blocks;
    blocks.k_cmp = one(out.k_cmp);
    blocks.v_cmp = one(out.v_cmp);
    fill(sequences[i], lengths[i], map_tokens(own, one),
         {one(rotated.q), one(rotated.k_sel), one(rotated.k_win), one(rotated.k_cmp_src)}, blocks);
  }
  out.k_cmp = out.v_cmp = at::Tensor();
  if (longest == 0) out.ran.clear();
  if (out.dropped_ids.defined())
    out.dropped_ids = dropped_ids(own_options.block_idx, lengths, config_);
  return out;
}

void LayerCache::load_context(int64_t sequence, const NsaInputs& tokens) {
  const NvtxRange range("nsa.load_context");
  const ArgumentCheck check("DecodeCache");
  if (sequence < 0 || sequence >= num_sequences()) {
    check.fail("sequence", "in 0.." + std::to_string(num_sequences() - 1),
               std::to_string(sequence));
  }
  if (num_tokens(sequence) != 0) {
    check.fail("sequence " + std::to_string(sequence), "empty (reset it first)",
               std::to_string(num_tokens(sequence)) + " tokens long");
  }
  check.defined("k_sel", tokens.k_sel);
  check.rank("k_sel", tokens.k_sel, 4, "[1, S, Hkv, dk]");
  NsaInputs own = tokens;
  const at::Tensor nothing = tokens.k_sel.narrow(2, 0, std::min<int64_t>(1, tokens.k_sel.size(2)));
  const int64_t length = tokens.k_sel.size(1);
  own.q = nothing.expand({-1, -1, config_.num_heads, -1});
  own.gate_logits = at::zeros({}, nothing.options()).expand({1, length, config_.num_heads, 3});
  check_tokens(own, 1);
  require_room({sequence}, {length});
  own.q = nothing;
  RotatedTokens rotated = rotate_tokens(own, at::arange(length, all_sequences_.options()), config_);
  NsaOutputs blocks;
  const auto [k_cmp, v_cmp] = compress(own.k_cmp_src, own.v_cmp_src, own.phi_k, own.phi_v, config_);
  blocks.k_cmp = k_cmp.select(0, 0), blocks.v_cmp = v_cmp.select(0, 0);
  for (at::Tensor* x : {&rotated.q, &rotated.k_sel, &rotated.k_win, &rotated.k_cmp_src})
    *x = x->select(0, 0);
  fill(sequence, length, map_tokens(own, [](const at::Tensor& x) { return x.select(0, 0); }),
       rotated, blocks);
}

// The rings take the last tokens only: the window its w, the source of compression min(l, length).
void LayerCache::fill(int64_t sequence, int64_t length, const NsaInputs& tokens,
                      const RotatedTokens& rotated, const NsaOutputs& batched) {
  const at::Tensor id = all_sequences_.narrow(0, sequence, 1);
  const auto positions = [&](int64_t begin, int64_t end) {
    return at::arange(begin, end, all_sequences_.options());
  };
  selected_.reserve(sequence, length);
  selected_.kv.write(selected_.rows(id, positions(0, length)), rotated.k_sel.narrow(0, 0, length),
                     tokens.v_sel.narrow(0, 0, length));
  const auto fill_ring = [&](TokenRing& ring, const at::Tensor& k, const at::Tensor& v) {
    const int64_t count = std::min(ring.num_slots(), length), begin = length - count;
    ring.kv.write(ring.rows(id, positions(begin, length)), k.narrow(0, begin, count),
                  v.narrow(0, begin, count));
    ring.grow(sequence, count);
  };
  fill_ring(window_, rotated.k_win, tokens.v_win);
  fill_ring(source_, rotated.k_cmp_src, tokens.v_cmp_src);
  const int64_t num_blocks = config_.num_compressed(length);
  compressed_.reserve(sequence, num_blocks);
  compressed_.kv.write(compressed_.rows(id, positions(0, num_blocks)),
                       batched.k_cmp.narrow(0, 0, num_blocks),
                       batched.v_cmp.narrow(0, 0, num_blocks));
  num_tokens_[static_cast<size_t>(sequence)] = length;
  num_blocks_[static_cast<size_t>(sequence)] = num_blocks;
  num_tokens_device_.select(0, sequence).fill_(length);
  num_blocks_device_.select(0, sequence).fill_(num_blocks);
}

}  // namespace nsa
