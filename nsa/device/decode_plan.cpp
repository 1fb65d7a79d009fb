// Chooses blocks of threads and warps for a decode step.
#include "nsa/device/decode_plan.h"

#include <algorithm>
#include <cmath>

namespace nsa::device {
namespace {

using sm80::DecodePlan;

constexpr int kMostRanks = 16, kLeastWarps = 4, kMostWarps = 8, kHeads = 16;
constexpr int kStaticBytes = 1024;

int rounded(int bytes) { return (bytes + 127) / 128 * 128; }

DecodePlan layout(const DecodeAttention& p, int ranks, int warps) {
  const int group = p.num_heads / p.num_kv_heads, per_unit = p.sel_block_size / p.block_stride;
  const int halo = p.block_size / p.block_stride - 1;
  const int units = (p.max_tokens + p.sel_block_size - 1) / p.sel_block_size;
  const int most_units = (units + ranks - 1) / ranks;
  DecodePlan plan;
  plan.ranks = ranks;
  plan.warps = warps;
  while ((1 << plan.log_ranks) < ranks) ++plan.log_ranks;
  plan.logits_stride = most_units * per_unit + halo;
  plan.area = warps * sm80::decode_ring_bytes(p.qk_head_dim, p.v_head_dim);
  plan.stats =
      plan.area + rounded(std::max({group * plan.logits_stride * 4, 3 * group * p.v_head_dim * 4,
                                    kHeads * p.qk_head_dim * 2}));
  plan.warp_stats = plan.stats + 2 * ranks * kHeads * 8;
  plan.weights = plan.warp_stats + warps * kHeads * 8;
  plan.candidates = plan.weights + std::max(warps, ranks) * kHeads * 4;
  plan.keys = plan.candidates + rounded(std::max(ranks * p.top_n * 8, p.qk_head_dim / 2 * 8));
  plan.bytes = plan.keys + (most_units + 31) / 32 * 32 * 8;
  return plan;
}

constexpr int kReservedBytes = 1024;  // of each block of threads, by the system

int shared_bytes(const DecodePlan& plan) { return plan.bytes + kStaticBytes; }

/// Microseconds on an H200, of which only the order matters: what a block of threads takes apart
/// from its tiles (more where more ranks wait for each other), and a tile of a warp, when memory
/// waits for the warp and when the warps of an SM wait for memory. Fitted to a sweep on one H200:
/// four warps of an SM reach less bandwidth than eight (8k, 256 sequences: 450 us
/// with 1 x 4, 360 with 1 x 8), and clusters leave SMs of a GPC idle (8k, 8 sequences: 47 us with
/// 4 x 8, whose 32 clusters need 128 SMs, 33 with 2 x 8).
double cost(const DecodeAttention& p, const DecodePlan& plan, const DecodeCard& card) {
  constexpr double kFixed = 7, kEachRank = .15, kTile = 1, kBytesOfSm = 34e3, kCrowded = 1.35;
  constexpr int kWarpsOfSm = 8, kTileKeys = 16;  // registers have room for eight warps
  const int of_sm =
      std::max(1, std::min(kWarpsOfSm / plan.warps,
                           card.shared_bytes_of_sm / (shared_bytes(plan) + kReservedBytes)));
  const auto tiles = [&](int keys) {
    return std::ceil(static_cast<double>(keys) / (kTileKeys * plan.ranks * plan.warps));
  };
  const int selected = std::min(p.max_tokens, p.top_n * p.sel_block_size);
  const double all = tiles(p.max_tokens / p.block_stride + std::min(p.window_size, p.max_tokens)) +
                     tiles(selected);
  const double bytes = kTileKeys * 2.0 * (p.qk_head_dim + p.v_head_dim) * plan.warps * of_sm *
                       (of_sm > 1 ? kCrowded : 1);
  const int sms = plan.ranks > 1 ? card.num_sms - card.num_sms / 8 : card.num_sms;
  const double waves =
      std::ceil(double(p.batch) * p.num_kv_heads * plan.ranks / (double(sms) * of_sm));
  return waves * (kFixed + kEachRank * plan.ranks + all * std::max(kTile, bytes / kBytesOfSm));
}

bool allowed(const DecodePlan& plan, const DecodeCard& card) {
  return plan.ranks <= (card.clusters ? kMostRanks : 1) && (plan.ranks & (plan.ranks - 1)) == 0 &&
         plan.warps >= kLeastWarps && plan.warps <= kMostWarps &&
         shared_bytes(plan) <= card.shared_bytes;
}

}  // namespace

DecodePlan plan_decode(const DecodeAttention& p, const DecodeCard& card) {
  DecodePlan best;
  double least = 0;
  for (int ranks = 1; ranks <= kMostRanks; ranks *= 2)
    for (int warps = kLeastWarps; warps <= kMostWarps; warps *= 2) {
      const bool asked = p.ranks > 0 && p.warps > 0;
      const DecodePlan plan = asked ? layout(p, p.ranks, p.warps) : layout(p, ranks, warps);
      if (!allowed(plan, card)) continue;
      const double one = cost(p, plan, card);
      // What costs the same by this is faster with more warps: see 1 x 4 and 1 x 8 above.
      const bool more_warps = one == least && plan.ranks == best.ranks;
      if (best.ranks == 0 || one < least || more_warps) best = plan, least = one;
    }
  return best;
}

}  // namespace nsa::device
