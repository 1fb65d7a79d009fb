// Interval attention of sm_90 in the emulator against fp64 loops: windows, compressed keys, the
// choice of blocks, ranges of tiles.
#include "nsa/kernels/interval/sm90/interval_attention_launch.h"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/interval/interval_documents_emulated.h"
#include "nsa/kernels/tests/interval/interval_emulated_problem.h"

namespace nsa::kernels::sm90 {
namespace {

using namespace testing;  // nsa::kernels::testing
using Problem = testing::Problem;

/// Instantiations that interval_emulated_kernels_*.cpp have.
struct Instance {
  int dk, dv;
  bool half, select_half;
  LaunchOfTiles wide;  // tiles of 128 keys
  sm90::Launch narrow, select;
};
constexpr Instance kInstances[] = {
    {64, 64, false, false, interval_64_64_128_bf16, interval_64_64_112_bf16, select_64_64_bf16},
    {128, 128, false, true, interval_128_128_128_bf16, interval_128_128_112_bf16,
     select_128_128_fp16},
    {192, 128, true, false, interval_192_128_128_fp16, interval_192_128_112_fp16,
     select_192_128_bf16},
};

enum Tiles { kWide, kNarrow };
void run(Sizes z, const Instance& one, Tiles tiles, int orders = 2, bool poisons = true) {
  emulator::set_card(emulator::Card::kH100);
  z.dk = one.dk, z.dv = one.dv;
  z.half = z.choice.block > 0 ? one.select_half : one.half;
  const auto launch = [&](const IntervalAttention& p) {
    if (p.selection.block_idx != nullptr) return one.select(p, nullptr);
    return tiles == kNarrow ? one.narrow(p, nullptr) : one.wide(p, {}, nullptr);
  };
  testing::run(z, launch, orders, poisons);
}

TEST(IntervalAttentionSm90, Windows) {
  int i = -1;
  for (const Instance& one : kInstances)
    for (const int group : {1, 4, 6, 16})
      for (const Tiles tiles : {kWide, kNarrow}) {
        if (!taken(++i)) continue;
        const int lengths[] = {1, 200, 97, 150, 300}, widths[] = {17, 130, 512, 70};
        const int s = lengths[i % 5], queries = group > 2 ? std::min(s, 260 / group) : s;
        run({"window",
             1 + i % 2,
             queries,
             s,
             1 + i % 3 / 2,
             group,
             0,
             0,
             s - queries,
             window(widths[i % 4]),
             {},
             false},
            one, tiles, i % 3 == 0 ? 5 : 3);
      }
}

TEST(IntervalAttentionSm90, WideGroupsAndManyTiles) {
  for (const Instance& one : kInstances) {
    run({"G 64", 1, 5, 80, 2, 64, 0, 0, 70, window(30), {}, false}, one, kWide);
    run({"few keys", 2, 77, 90, 2, 3, 0, 0, 61, window(40), {}, false}, one, kNarrow);
    // More tiles than multiprocessors: CTAs take several.
    run({"many", 2, 150, 150, 3, 6, 0, 0, 0, window(50), {}, false}, one, kWide, 3);
  }
}

TEST(IntervalAttentionSm90, CompressedKeys) {
  int i = -1;
  for (const Instance& one : kInstances)
    for (const int group : {1, 4, 6, 16}) {
      if (!taken(++i)) continue;
      const int s = i % 2 ? 240 : 120, first = i % 3 ? 0 : 3000;
      const IntervalRule rule = i % 4 == 3 ? compressed(8, 4) : compressed(32, 16);
      const int keys = (first + s - rule.extent) / rule.stride + 1;
      const int queries = group > 2 ? std::min(s, 260 / group) : s;
      run({"compressed", 1 + i % 2, queries, keys, 1 + i % 2, group, 0, 0, first, rule, {}, false},
          one, i % 2 ? kWide : kNarrow, i % 3 == 0 ? 5 : 3, i % 3 == 1);
    }
  run({"no keys", 1, 20, 0, 1, 2, 0, 0, 0, compressed(32, 16), {}, false}, kInstances[0], kWide);
}

/// Blocks are chosen directly at dk of 128 and 192, by the selection pass at 64.
TEST(IntervalAttentionSm90, ChosenBlocks) {
  const IntervalRule rule = compressed(32, 16);
  const Choice usual{64, 16, 1, 2};
  int i = -1;
  for (const Instance& one : kInstances)
    for (const int group : {1, 4, 6, 16}) {
      if (!taken(++i)) continue;
      const int queries = group > 2 ? 260 / group : 130 + 26 * (i % 2);
      const int first = i % 3 == 0 ? 4100 : 1100;
      const Data data = i % 4 == 3 ? Data::kEqual : i % 4 == 2 ? Data::kRising : Data::kRandom;
      run({"blocks", 1 + i % 2, queries, (first + queries - 32) / 16 + 1, 1 + i % 2, group, 0, 0,
           first, rule, usual, false, data},
          one, kWide, i % 3 == 0 ? 4 : 3, i % 3 == 1);
    }
  for (const Instance& one : kInstances)  // CTAs take many tiles
    run({"many", 1, 90, 150, 2, 16, 0, 0, 2400, rule, usual, false}, one, kWide, 3, false);
}

TEST(IntervalAttentionSm90, OtherChoices) {
  const IntervalRule rule = compressed(32, 16);
  const auto later = [](const char* name, int queries, int group, int instance, int first,
                        const IntervalRule& r, const Choice& choice, Data data = Data::kRandom) {
    run({name, 1, queries, (first + queries - r.extent) / r.stride + 1, 1, group, 0, 0, first, r,
         choice, false, data},
        kInstances[instance], kWide, 3, false);
  };
  for (const int instance : {0, 1, 2}) later("one token", 1, 1, instance, 0, rule, {64, 16, 1, 2});
  later("from the start", 300, 2, 1, 0, rule, {64, 3, 1, 1});
  later("few blocks", 40, 2, 0, 1984, rule, {64, 4, 0, 1});
  later("few blocks", 40, 3, 2, 1984, rule, {64, 4, 0, 1});
  later("forced only", 40, 2, 1, 2000, rule, {64, 3, 1, 2});
  later("n 32", 20, 5, 1, 3000, rule, {64, 32, 0, 1});
  later("n 32 rising", 20, 1, 2, 4000, rule, {64, 32, 0, 1}, Data::kRising);
  later("l' 32", 20, 6, 0, 2200, rule, {32, 16, 1, 2});
  later("l' 16", 40, 1, 1, 3000, compressed(16, 16), {16, 16, 2, 3});
  for (const int group : {2, 6, 16})  // l = d = l': four adjacent blocks a lane
    for (const Data data : {Data::kRandom, Data::kRising, Data::kEqual})
      later("l' 16, all alike", 20, group, group == 2 ? 1 : 0, 1200 * group, compressed(16, 16),
            {16, 16, 1, 2}, data);
  later("l' 128", 20, 3, 2, 4400, rule, {128, 16, 1, 2});
  later("l 64", 40, 2, 1, 2200, compressed(64, 16), {64, 16, 1, 2});
  later("l 64 equal", 40, 1, 0, 2200, compressed(64, 16), {64, 16, 1, 2}, Data::kEqual);
  for (const int group : {1, 6, 16})
    later("comb", 16, group, 1 + group % 2, 8000, rule, {64, 16, 1, 2}, Data::kComb);
}

/// Tokens whose ranges are tiles of 64 keys; those of some are not.
struct TileProblem : Problem {
  explicit TileProblem(const Sizes& sizes, int num_ranges)
      : Problem(sizes), num_ranges(num_ranges) {
    std::mt19937_64 random(5);
    ranges.assign(size_t(z.batch) * tokens_of_batch() * z.kv_heads * num_ranges * 2, -7);
    words.assign(tokens, 0), ragged.assign(tokens, 0);
    for (int64_t token = 0; token < tokens; ++token) {
      const int position = z.first_position + int(token / z.kv_heads % z.queries);
      const int limit = std::min(position + 1, z.keys);
      for (int i = 0; i < num_ranges; ++i) {
        int32_t* const range = ranges.data() + (place(token) * num_ranges + i) * 2;
        const int first = i == 0 ? limit / 64 : int(random() % uint64_t(limit / 64 + 1));
        const int count = 1 + int(random() % 2);
        range[0] = first * 64, range[1] = std::min((first + count) * 64, limit);
        if (i > 0 && random() % 8 == 0) range[0] = range[1] = 0;
        if (token % 37 == 5 && i == 1 && range[1] > range[0]) ++range[0], ragged[token] = 1;
        if (range[1] <= range[0]) continue;
        for (int tile = range[0] / 64; tile * 64 < range[1]; ++tile) words[token] |= 1ull << tile;
      }
    }
  }
  int tokens_of_batch() const { return z.queries + 3; }
  /// Of a token among all of [B, tokens_of_batch, Hkv].
  int64_t place(int64_t token) const {
    const int64_t batch = token / z.kv_heads / z.queries;
    return token + batch * 3 * z.kv_heads;
  }

  /// Output and lse have places for tokens that are not computed: they stay as they are.
  cudaError_t launch(const Instance& one, IntervalAttention p) const {
    const int64_t places = int64_t{z.batch} * tokens_of_batch() * z.kv_heads,
                  width = int64_t{z.group} * z.dv;
    std::vector<uint16_t> out(places * width, 0x7b7b);
    std::vector<float> lse(places * z.group, 7.f);
    auto* const to = static_cast<uint16_t*>(std::exchange(p.out, out.data()));
    float* const to_lse = std::exchange(p.lse, lse.data());
    const cudaError_t status = one.wide(p, {ranges.data(), num_ranges, tokens_of_batch()}, nullptr);
    for (int64_t token = 0; token < tokens; ++token) {
      std::copy_n(out.begin() + place(token) * width, width, to + token * width);
      std::copy_n(lse.begin() + place(token) * z.group, z.group, to_lse + token * z.group);
      std::fill_n(lse.begin() + place(token) * z.group, z.group, 7.f);
      std::fill_n(out.begin() + place(token) * width, width, uint16_t{0x7b7b});
    }
    EXPECT_EQ(std::count(lse.begin(), lse.end(), 7.f), int64_t(lse.size()));
    EXPECT_EQ(std::count(out.begin(), out.end(), 0x7b7b), int64_t(out.size()));
    return status;
  }

  int num_ranges;
  std::vector<int32_t> ranges;
};

void run_tiles(const Instance& one, Sizes z, int num_ranges, int orders) {
  emulator::set_card(emulator::Card::kH100);
  z.dk = one.dk, z.dv = one.dv, z.half = one.half;
  title(z);
  const int before = failures;
  TileProblem p(z, num_ranges);
  const auto forward = [&](int seed) {
    set_order(seed);
    return p.forward([&](const IntervalAttention& x) { return p.launch(one, x); });
  };
  const Results first = forward(0);
  judge(p, first);
  for (int seed = 1; seed < orders; ++seed)
    compare_bits(p, forward(seed), first, "same bits in another order",
                 [](int, int) { return true; });
  p.v.set(0, 70, 0, 1, INFINITY), p.v.set(0, z.keys - 1, 0, z.dv - 1, NAN);
  const Results second = forward(orders);
  judge(p, second);
  const auto clean = [&](int batch, int query) {  // neither tile is any head's
    const int64_t token = (int64_t{batch} * z.queries + query) * z.kv_heads;
    return batch > 0 || !(p.attends(token, 70) || p.attends(token, z.keys - 1));
  };
  compare_bits(p, second, first, "rows beside bad values", clean);
  EXPECT_EQ(failures, before);
}

TEST(IntervalAttentionSm90, RangesOfTiles) {
  int i = -1;
  for (const Instance& one : kInstances)
    for (const int group : {1, 4, 6, 16}) {
      if (!taken(++i)) continue;
      const int s = 330 + 100 * (i % 3), queries = group > 2 ? 300 / group : 150;
      run_tiles(one,
                {"tiles",
                 1 + i % 2,
                 queries,
                 s,
                 1,
                 group,
                 0,
                 0,
                 s - queries,
                 window(IntervalRule::kEverything),
                 {},
                 false},
                i % 2 ? 3 : 5, i % 3 == 0 ? 5 : 3);
    }
  // CTAs take many tiles: words are made while those before them are read.
  for (const Instance& one : kInstances)
    run_tiles(one,
              {"many", 2, 70, 200, 3, 16, 0, 0, 130, window(IntervalRule::kEverything), {}, false},
              3, 3);
}

TEST(IntervalAttentionSm90, DocumentsInOneLaunch) {
  const std::vector<int> lengths = {0, 1, 3, 32, 31, 0, 65, 270, 0};
  int i = -1;
  for (const Instance& one : kInstances)
    for (const int group : {one.dk == 64 ? 1 : one.dk == 128 ? 4 : 16}) {
      if (!taken(++i)) continue;
      const auto run = [&](const char* name, const IntervalRule& rule, const Choice& choice,
                           Tiles tiles = kWide) {
        emulator::set_card(emulator::Card::kH100);
        const bool half = choice.block > 0 ? one.select_half : one.half;
        const Sizes z{name,   1, 0,    0,      1 + i % 2, group,        one.dk,
                      one.dv, 0, rule, choice, half,      Data::kRandom};
        run_documents(
            z, lengths,
            [&](const IntervalAttention& p) {
              if (p.selection.block_idx != nullptr) return one.select(p, nullptr);
              return tiles == kNarrow ? one.narrow(p, nullptr) : one.wide(p, {}, nullptr);
            },
            Code::kSm90);
      };
      run("window", window(i % 2 ? 17 : 512), {}, i % 2 ? kWide : kNarrow);
      run("compressed", compressed(32, 16), {});
      run("blocks", compressed(32, 16), {64, 3, 1, 1});  // chosen directly at dk of 128 and 192
      run("blocks of 32", compressed(32, 16), {32, 3, 1, 1});
      run("blocks of 16", compressed(16, 16), {16, 4, 1, 1});
    }
}

}  // namespace
}  // namespace nsa::kernels::sm90
