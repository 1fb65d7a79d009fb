// Interval attention of sm_80, with and without the choice of blocks, in the emulator against fp64
// loops.
#include "nsa/kernels/interval/sm80/interval_attention.cuh"

#include "nsa/kernels/common/shared_bytes.h"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/interval/interval_documents_emulated.h"
#include "nsa/kernels/tests/interval/interval_emulated_problem.h"

namespace nsa::kernels::sm80 {
namespace {

using namespace testing;  // nsa::kernels::testing

cudaError_t (*launch_of(const Sizes& z))(const IntervalAttention&, cudaStream_t) {
  if (z.dk == 64)
    return z.half ? launch_interval_attention<64, 64, __half>
                  : launch_interval_attention<64, 64, __nv_bfloat16>;
  if (z.dk == 128)
    return z.half ? launch_interval_attention<128, 128, __half>
                  : launch_interval_attention<128, 128, __nv_bfloat16>;
  if (z.dk == 192)
    return z.half ? launch_interval_attention<192, 128, __half>
                  : launch_interval_attention<192, 128, __nv_bfloat16>;
  return z.half ? launch_interval_attention<256, 256, __half>
                : launch_interval_attention<256, 256, __nv_bfloat16>;
}
void run(const Sizes& z, int orders = 2, bool poisons = true) {
  const auto launch = [&](const IntervalAttention& p) {
    const cudaError_t status = launch_of(z)(p, nullptr);
    const bool selects = p.selection.block_idx != nullptr;
    // What a card is asked for before the launch.
    EXPECT_EQ(emulator::shared_bytes_of_launch(),
              interval_forward_bytes(z.dk, z.dv, z.group, selects,
                                     p.selection.top_n > 32 || p.rule.extent > 4 * p.rule.stride));
    return status;
  };
  testing::run(z, launch, orders, poisons);
}

TEST(IntervalAttentionEmulated, Windows) {
  int i = -1;
  for (const auto& [dk, dv] : kDims)
    for (const bool half : {false, true})
      for (const int group : {1, 2, 3, 4, 6, 8, 16}) {
        if (!taken(++i)) continue;
        const int lengths[] = {1, 63, 64, 65, 200}, widths[] = {1, 17, 512, 70};
        const int s = lengths[i % 5], w = widths[i % 4];
        const int queries = group > 2 ? std::min(s, 130 / group) : s;
        run({"window", 1 + i % 2, queries, s, 1, group, dk, dv, s - queries, window(w), {}, half},
            i % 3 == 0 ? 4 : 2);
      }
}

TEST(IntervalAttentionEmulated, WideGroupsAndLaterTokens) {
  for (const auto& [dk, dv] : kDims) {
    run({"G 64", 1, 5, 80, 2, 64, dk, dv, 70, window(30), {}, dk == 128});
    run({"G 100", 1, 3, 70, 1, 100, dk, dv, 60, window(512), {}, dk == 64});
    run({"few keys", 2, 77, 90, 2, 3, dk, dv, 61, window(40), {}, dk == 192});
  }
}

TEST(IntervalAttentionEmulated, CompressedKeys) {
  int i = -1;
  for (const auto& [dk, dv] : kDims)
    for (const bool half : {false, true})
      for (const int group : {1, 2, 3, 4, 6, 8, 16}) {
        if (!taken(++i)) continue;
        const int s = i % 2 ? 140 : 70, first = i % 3 ? 0 : 1200;
        const IntervalRule rule = i % 4 == 3 ? compressed(8, 4) : compressed(32, 16);
        const int keys = (first + s - rule.extent) / rule.stride + 1;
        const int queries = group > 2 ? std::min(s, 130 / group) : s;
        run({"compressed", 1, queries, keys, 1 + i % 2, group, dk, dv, first, rule, {}, half},
            i % 3 == 0 ? 4 : 2, i % 3 == 1);
      }
  run({"no keys", 1, 20, 0, 1, 2, 64, 64, 0, compressed(32, 16), {}, false});
}

TEST(IntervalAttentionEmulated, ChosenBlocks) {
  const IntervalRule rule = compressed(32, 16);
  const Choice usual{64, 16, 1, 2};
  int i = -1;
  for (const auto& [dk, dv] : kDims)
    for (const bool half : {false, true})
      for (const int group : {1, 2, 3, 4, 6, 8, 16}) {
        if (!taken(++i)) continue;
        const int queries = group > 2 ? 130 / group : 40 + 26 * (i % 2);
        const int first = i % 3 == 0 ? 2300 : 1100;
        const Data data = i % 4 == 3 ? Data::kEqual : i % 4 == 2 ? Data::kRising : Data::kRandom;
        run({"blocks", 1 + i % 2, queries, (first + queries - 32) / 16 + 1, 1, group, dk, dv, first,
             rule, usual, half, data},
            i % 3 == 0 ? 3 : 2, i % 3 == 1);
      }
}

TEST(IntervalAttentionEmulated, OtherChoices) {
  const IntervalRule rule = compressed(32, 16);
  const auto later = [](const char* name, int queries, int group, int dims, int first,
                        const IntervalRule& r, const Choice& choice, bool half,
                        Data data = Data::kRandom) {
    run({name, 1, queries, (first + queries - r.extent) / r.stride + 1, 1, group, dims, dims, first,
         r, choice, half, data},
        3, false);
  };
  later("one token", 1, 1, 64, 0, rule, {64, 16, 1, 2}, false);
  later("from the start", 300, 2, 64, 0, rule, {64, 3, 1, 1}, false);
  for (const int group : {2, 3})  // the last chosen block reaches behind some positions
    later("few blocks", 40, group, 64, 1984, rule, {64, 4, 0, 1}, group == 3);
  later("forced only", 40, 2, 64, 2000, rule, {64, 3, 1, 2}, false);
  later("n 32", 20, 5, 128, 3000, rule, {64, 32, 0, 1}, false);
  later("n 32 rising", 20, 1, 128, 4000, rule, {64, 32, 0, 1}, true, Data::kRising);
  later("n 33", 20, 5, 128, 3000, rule, {64, 33, 0, 1}, false);
  later("n 64", 20, 2, 64, 5000, rule, {64, 64, 1, 2}, false);
  later("n 64 rising", 20, 1, 128, 5000, rule, {64, 64, 0, 1}, true, Data::kRising);
  later("n 64 equal", 20, 16, 64, 5000, rule, {64, 64, 2, 3}, true, Data::kEqual);
  for (const int group : {1, 4})
    later("n 45 of two levels", 20, group, 64, 7000, rule, {64, 45, 1, 2}, true, Data::kTwoLevels);
  later("n 64 of few", 20, 3, 64, 3990, rule, {64, 64, 1, 2}, false);
  later("n 64 of blocks of 16", 30, 4, 64, 2000, compressed(16, 16), {16, 64, 1, 2}, true);
  later("G 17", 5, 17, 64, 2600, rule, {64, 16, 1, 2}, false);
  later("G 32", 5, 32, 128, 2600, rule, {64, 16, 1, 2}, true);
  later("G 64", 5, 64, 64, 2600, rule, {64, 16, 1, 2}, false);
  later("G 48 equal", 5, 48, 64, 2600, rule, {64, 40, 1, 2}, true, Data::kEqual);
  later("G 64 from the start", 40, 64, 64, 0, compressed(16, 16), {16, 4, 1, 1}, false);
  later("l 128", 40, 2, 64, 2600, compressed(128, 16), {128, 16, 1, 2}, true);
  later("l 128 equal", 40, 1, 64, 2600, compressed(128, 16), {64, 40, 1, 2}, true, Data::kEqual);
  later("l' 32", 20, 6, 64, 2200, rule, {32, 16, 1, 2}, false);
  later("l' 16", 40, 1, 64, 3000, compressed(16, 16), {16, 16, 2, 3}, true);
  later("l' 128", 20, 3, 128, 4400, rule, {128, 16, 1, 2}, false);
  later("l 64", 40, 2, 64, 2200, compressed(64, 16), {64, 16, 1, 2}, true);
  later("l 64 equal", 40, 1, 64, 2200, compressed(64, 16), {64, 16, 1, 2}, true, Data::kEqual);
  for (const int group : {1, 6, 16})
    later("comb", 16, group, 64, 8000, rule, {64, 16, 1, 2}, false, Data::kComb);
}

TEST(IntervalAttentionEmulated, DocumentsInOneLaunch) {
  std::vector<int> lengths = {0, 1, 3, 32, 31, 0, 65, 130, 0};
#ifdef __SANITIZE_ADDRESS__
  lengths = {0, 3, 32, 0, 65, 0};  // instrumented code takes several times as long
#endif
  int i = -1;
  for (const auto& [dk, dv] : kDims)
    for (const int group : {dk == 64 ? 1 : 3, dk == 192 ? 4 : 16}) {
      if (!taken(++i)) continue;
      const auto run = [&](const char* name, const IntervalRule& rule, const Choice& choice,
                           Data data = Data::kRandom) {
        Sizes z{name, 1, 0, 0, 1 + i % 2, group, dk, dv, 0, rule, choice, i % 3 == 0, data};
        run_documents(
            z, lengths, [&](const IntervalAttention& p) { return launch_of(z)(p, nullptr); },
            Code::kSm80);
      };
      run("window", window(i % 2 ? 17 : 512), {});
      run("compressed", compressed(32, 16), {});
      run("blocks", compressed(32, 16), {32, 3, 1, 1});
      run("blocks of 16", compressed(16, 16), {16, 4, 1, 1}, Data::kEqual);
    }
}

}  // namespace
}  // namespace nsa::kernels::sm80
