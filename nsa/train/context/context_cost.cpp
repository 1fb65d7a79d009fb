#include "nsa/train/context/context_cost.h"

#include <algorithm>

namespace nsa::train {
namespace {

/// Keys that the queries of [begin, end) attend to in all branches together, summed over them.
double attended_keys(const NsaConfig& c, double begin, double end) {
  const auto capped = [&](double most) {  // sum over t of min(most, t + 1)
    const auto up_to = [&](double n) {
      const double short_rows = std::min(n, most);
      return short_rows * (short_rows + 1) / 2 + (n - short_rows) * most;
    };
    return up_to(end) - up_to(begin);
  };
  const double blocks = (end * end - begin * begin) / 2 / static_cast<double>(c.block_stride);
  return blocks + capped(static_cast<double>(c.top_n * c.sel_block_size)) +
         capped(static_cast<double>(c.window));
}

double key_value_dims(const NsaConfig& c) {
  return static_cast<double>(c.qk_head_dim + c.v_head_dim);
}

}  // namespace

bool fetching_is_cheaper(int64_t most, int64_t rest) {
  return static_cast<double>(most) * kFetchOverhead < static_cast<double>(rest);
}

ContextBytes context_bytes(const NsaConfig& c, const ContextCall& call) {
  const double row = static_cast<double>(call.batch * c.num_kv_heads * call.value_bytes) *
                     key_value_dims(c);  // K and V of one token
  const auto part = static_cast<double>(call.sequence / call.ranks);
  const auto others = static_cast<double>(call.ranks - 1);
  ContextBytes bytes;
  if (call.ranks == 1) return bytes;
  bytes.compressed = others * part / static_cast<double>(c.block_stride) * row;
  bytes.selected = others * part * row;
  const double pieces = call.ranks > 2 ? 2 : 1;  // of two ranks each has one that follows its own
  bytes.boundaries =
      pieces * row *
      static_cast<double>(c.block_size - c.block_stride + std::max<int64_t>(c.window - 1, 0));
  bytes.gradients = bytes.compressed + bytes.selected + bytes.boundaries;
  return bytes;
}

std::string ContextTimes::limit() const {
  return communication_ms > attention_ms ? "communication" : "attention";
}

double work_balance(const NsaConfig& c, int64_t sequence, int64_t ranks, ContextLayout layout) {
  const int64_t pieces = layout == ContextLayout::kZigzag ? 2 * ranks : ranks;
  const double tokens = static_cast<double>(sequence) / static_cast<double>(pieces);
  const auto of_piece = [&](int64_t i) {
    return attended_keys(c, static_cast<double>(i) * tokens, static_cast<double>(i + 1) * tokens);
  };
  double most = 0;
  for (int64_t r = 0; r < ranks; ++r)
    most = std::max(most, of_piece(r) + (pieces > ranks ? of_piece(pieces - 1 - r) : 0));
  return attended_keys(c, 0, static_cast<double>(sequence)) / static_cast<double>(ranks) / most;
}

ContextTimes context_times(const NsaConfig& c, const ContextCall& call, const ContextRates& rates) {
  // Forward 2 (dk + dv), backward 6 dk + 4 dv for each head and key.
  const auto dk = static_cast<double>(c.qk_head_dim), dv = static_cast<double>(c.v_head_dim);
  const double flops = (8 * dk + 6 * dv) * static_cast<double>(call.batch * c.num_heads);
  const double mean =
      attended_keys(c, 0, static_cast<double>(call.sequence)) / static_cast<double>(call.ranks);
  const double balance = work_balance(c, call.sequence, call.ranks, ContextLayout::kZigzag);
  return {.attention_ms = mean / balance * flops / (rates.attention_tflops * 1e12) * 1e3,
          .communication_ms = context_bytes(c, call).total() / (rates.link_gb_per_s * 1e9) * 1e3};
}

}  // namespace nsa::train
