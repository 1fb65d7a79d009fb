// Chooses blocks of threads and warps for a decode step.
#include "nsa/kernels/decode/decode_plan.h"

#include <algorithm>
#include <cmath>

namespace nsa::kernels {
namespace {

using portable::DecodePlan;

constexpr int kMostRanks = 16, kLeastWarps = 4, kMostWarps = 8, kHeads = 16;
constexpr int kStaticBytes = 1024;

int rounded(int bytes) { return (bytes + 127) / 128 * 128; }

DecodePlan layout(const DecodeAttention& p, const DecodeCard& card, int ranks, int warps,
                  bool unit_sums) {
  const int group = p.num_heads / p.num_kv_heads, per_unit = p.sel_block_size / p.block_stride;
  const int halo = p.block_size / p.block_stride - 1;
  const int units = (p.max_tokens + p.sel_block_size - 1) / p.sel_block_size;
  const int most_units = (units + ranks - 1) / ranks, most_tiles = (most_units + 3) / 4;
  DecodePlan plan;
  plan.ranks = ranks;
  plan.warps = warps;
  plan.overlaps = card.clusters;
  while ((1 << plan.log_ranks) < ranks) ++plan.log_ranks;
  plan.unit_sums = unit_sums && per_unit == 4 && halo == 1;
  // Logits: whole tiles behind the halo, from an even column on; heads eight banks apart.
  const int logits = (most_units * per_unit + 15) / 16 * 16 + (halo + 1) / 2 * 2;
  plan.score_stride = plan.unit_sums ? 4 * most_tiles : (logits + 23) / 32 * 32 + 8;
  plan.tile_stride = plan.unit_sums ? most_tiles + 1 : 0;
  plan.area = warps * portable::decode_ring_bytes(p.qk_head_dim, p.v_head_dim);
  plan.carries = plan.area + group * plan.score_stride * 4;
  plan.references = plan.carries + group * plan.tile_stride * 4;
  const int scores = plan.references + group * plan.tile_stride * 4 - plan.area;
  plan.stats =
      plan.area +
      rounded(std::max({scores, 3 * group * p.v_head_dim * 4, kHeads * p.qk_head_dim * 2}));
  plan.warp_stats = plan.stats + 2 * ranks * kHeads * 8;
  plan.weights = plan.warp_stats + warps * kHeads * 8;
  plan.candidates = plan.weights + kMostWarps * kHeads * 4;
  const int width = p.top_n <= 16 ? 16 : 32;
  plan.keys =
      plan.candidates + rounded(std::max(ranks * width * 8, p.tokens * p.qk_head_dim / 2 * 8));
  plan.bytes = plan.keys + warps * 2 * width * 8;
  return plan;
}

constexpr int kReservedBytes = 1024;  // of each block of threads, by the system

int shared_bytes(const DecodePlan& plan) { return plan.bytes + kStaticBytes; }

/// Blocks of threads that run on an SM at a time.
int blocks_of_sm(const DecodePlan& plan, const DecodeCard& card) {
  constexpr int kWarpsOfSm = 8;  // registers have room for these
  return std::min(kWarpsOfSm / plan.warps,
                  card.shared_bytes_of_sm / (shared_bytes(plan) + kReservedBytes));
}

bool allowed(const DecodePlan& plan, const DecodeCard& card) {
  return plan.ranks <= (card.clusters ? kMostRanks : 1) && (plan.ranks & (plan.ranks - 1)) == 0 &&
         plan.warps >= kLeastWarps && plan.warps <= kMostWarps &&
         shared_bytes(plan) <= card.shared_bytes;
}

/// Logits cost less work than unit sums, which are taken where they let more blocks run.
DecodePlan layout(const DecodeAttention& p, const DecodeCard& card, int ranks, int warps) {
  const DecodePlan logits = layout(p, card, ranks, warps, /*unit_sums=*/false);
  const DecodePlan sums = layout(p, card, ranks, warps, /*unit_sums=*/true);
  const bool more = !allowed(logits, card) || blocks_of_sm(sums, card) > blocks_of_sm(logits, card);
  return p.unit_sums || more ? sums : logits;
}

/// Microseconds on an H200, of which only the order matters: what a block of threads takes apart
/// from its tiles (more where more ranks wait for each other), and a tile of each of its warps,
/// when memory waits for the warps and when the warps of an SM wait for memory. Fitted to sweeps on
/// one H200 (NOTEBOOK.md). Clusters leave SMs of a GPC idle: those of 4 ran on 124 of 132.
double cost(const DecodeAttention& p, const DecodePlan& plan, const DecodeCard& card) {
  constexpr double kFixed = 16, kEachRank = .15, kTile = 1.7, kBytesOfSm = 38e3;
  constexpr int kTileKeys = 16;
  const int of_sm = std::max(1, blocks_of_sm(plan, card));
  const auto tiles = [&](int keys) {
    return std::ceil(static_cast<double>(keys) / (kTileKeys * plan.ranks * plan.warps));
  };
  const int selected = std::min(p.max_tokens, p.top_n * p.sel_block_size);
  const double all = tiles(p.max_tokens / p.block_stride + std::min(p.window_size, p.max_tokens)) +
                     tiles(selected);
  const int idle = plan.ranks <= 2 ? 0 : card.num_sms / (plan.ranks == 4 ? 16 : 8);
  const double blocks = double(p.batch) * p.tokens * p.num_kv_heads * plan.ranks,
               sms = card.num_sms - idle;
  const double waves = std::ceil(blocks / (sms * of_sm));
  const double bytes = kTileKeys * 2.0 * (p.qk_head_dim + p.v_head_dim) * plan.warps * of_sm *
                       std::min(1.0, blocks / sms);  // the memory of SMs without a block is spare
  return waves * (kFixed + kEachRank * plan.ranks + all * std::max(kTile, bytes / kBytesOfSm));
}

}  // namespace

DecodePlan plan_decode(const DecodeAttention& p, const DecodeCard& card) {
  DecodePlan best;
  double least = 0;
  for (int ranks = 1; ranks <= kMostRanks; ranks *= 2)
    for (int warps = kLeastWarps; warps <= kMostWarps; warps += 2) {
      const bool asked = p.ranks > 0 && p.warps > 0;
      const DecodePlan plan =
          asked ? layout(p, card, p.ranks, p.warps) : layout(p, card, ranks, warps);
      if (!allowed(plan, card)) continue;
      const double one = cost(p, plan, card);
      // What costs the same by this is faster with more warps.
      const bool more_warps = one == least && plan.ranks == best.ranks;
      if (best.ranks == 0 || one < least || more_warps) best = plan, least = one;
    }
  return best;
}

}  // namespace nsa::kernels
