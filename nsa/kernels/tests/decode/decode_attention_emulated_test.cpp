// The decode step by code of sm_80, where a (sequence, KV head) is one block of threads, in the
// emulator: judged as on a card, and the same bits in every order.
#include <algorithm>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "nsa/kernels/decode/decode_attention.h"
#include "nsa/kernels/decode/decode_problem.cuh"
#include "nsa/kernels/tests/decode/decode_judge.cuh"
#include "nsa/kernels/tests/emulator/order.h"

namespace {

using nsa::kernels::emulator::kOtherOrders, nsa::kernels::emulator::set_order;

/// Outputs of the last step.
template <typename T>
struct Bits {
  std::vector<char> bytes;
  explicit Bits(const World<T>& w) {
    const auto add = [&](const auto& buffer) {
      const auto values = buffer.host();
      const char* const from = reinterpret_cast<const char*>(values.data());
      bytes.insert(bytes.end(), from, from + values.size() * sizeof(values[0]));
    };
    for (const auto* x : {&w.out, &w.o_cmp, &w.o_sel, &w.o_win, &w.q_rotated}) add(*x);
    for (const auto* x : {&w.lse_cmp, &w.lse_sel, &w.lse_win, &w.gates, &w.scores}) add(*x);
    add(w.block_idx), add(w.ranges), add(w.reads);
  }
};

/// All steps of a case, judged; bits of the last one.
template <typename T>
Bits<T> run(const Case& c, uint64_t order) {
  set_order(order);
  World<T> w(c);
  const DecodeAttention p = w.problem();
  EXPECT_EQ(nsa::kernels::unsupported_reason(p), nullptr)
      << c.name << ": " << nsa::kernels::unsupported_reason(p);
  for (int step = 0; step < c.steps; ++step) {
    const std::vector<int64_t> before = w.num_tokens.host();
    w.draw_token();
    w.out.fill(0x7f), w.o_cmp.fill(0x7f), w.o_sel.fill(0x7f), w.o_win.fill(0x7f);
    w.lse_cmp.fill(0x7f), w.reads.fill(0x7f), w.block_idx.fill(0x7f), w.scores.fill(0x7f);
    w.ranges.fill(0x7f), w.gates.fill(0x7f), w.lse_sel.fill(0x7f), w.lse_win.fill(0x7f);
    EXPECT_EQ(nsa::kernels::decode_attention(p, nullptr), cudaSuccess);
    EXPECT_TRUE(judge_step(w, before, step)) << c.name << ", order " << order;
  }
  return Bits<T>(w);
}

template <typename T>
void expect_right(const Case& c, std::initializer_list<uint64_t> orders = {1, 2}) {
  const Bits<T> first = run<T>(c, 0);
  if (!kOtherOrders) return;
  for (const uint64_t order : orders)
    EXPECT_TRUE(run<T>(c, order).bytes == first.bytes) << c.name << ": other bits in " << order;
}

Case make(const char* name, std::vector<int> lengths, int group, int kv_heads, const int (&dims)[2],
          int capacity) {
  Case c;
  c.name = name, c.lengths = std::move(lengths), c.group = group, c.kv_heads = kv_heads;
  c.dk = dims[0], c.dv = dims[1], c.capacity = capacity;
  return c;
}

constexpr int kDims[3][2] = {{64, 64}, {128, 128}, {192, 128}};

/// Instrumented code looks for addresses alone, which one of them shows.
std::vector<int> all_or(std::vector<int> all, int when_instrumented) {
  return kOtherOrders ? all : std::vector<int>{when_instrumented};
}

TEST(DecodeEmulated, ShortSequencesOfAllDimsAndTypes) {
  for (const auto& d : kDims) {
    Case c = make("short", {0, 31, 47, 65}, 16, 1, d, 256);
    c.steps = 2;
    expect_right<__nv_bfloat16>(c);
    c.group = 6, c.kv_heads = 2;
    expect_right<__half>(c, {3});
  }
}

TEST(DecodeEmulated, SelectionAmongMoreBlocksThanAreChosen) {
  int group = 16;
  for (const auto& d : kDims) {
    Case c = make("lengths apart", {1500, 510}, group, 2, d, 1600);
    c.gate = GateFunction::kSigmoid;
    expect_right<__nv_bfloat16>(c, {3});
    group = std::max(1, group / 4);
  }
}

TEST(DecodeEmulated, ScoresAsUnitSumsAndTies) {
  for (const bool sums : {false, true}) {
    Case c = make("ties", {1500, 800}, 6, 2, kDims[0], 1600);
    c.equal_keys = true, c.unit_sums = sums, c.warps = 4, c.ranks = 1;
    expect_right<__half>(c, {3});
    c.equal_keys = false, c.repeated = true, c.warps = 8;
    c.name = "repeated";
    expect_right<__nv_bfloat16>(c, {2});
    c.repeated = false, c.warps = 6, c.name = "six warps";
    expect_right<__half>(c, {4});
  }
}

TEST(DecodeEmulated, StepsThatEmitAndWrap) {
  Case c = make("steps", {500, 511, 15}, 4, 2, kDims[1], 700);
  c.steps = 17, c.gate_heads = 2;
  expect_right<__nv_bfloat16>(c, {5});
}

TEST(DecodeEmulated, AStepOfATokenThatIsThereHasTheSameBits) {
  for (const auto& d : kDims) {
    Case c = make("not appended", {900, 0, 47}, 6, 2, d, 1000);
    World<__nv_bfloat16> w(c);
    w.draw_token();
    DecodeAttention p = w.problem();
    ASSERT_EQ(nsa::kernels::decode_attention(p, nullptr), cudaSuccess);
    const Bits<__nv_bfloat16> appended(w);
    w.out.fill(0x7f), w.o_cmp.fill(0x7f), w.o_sel.fill(0x7f), w.o_win.fill(0x7f);
    w.reads.fill(0x7f), w.block_idx.fill(0x7f), w.scores.fill(0x7f), w.ranges.fill(0x7f);
    p.appends = false;
    p.q.data = w.q_rotated.data, p.q_rotated = nullptr;
    ASSERT_EQ(nsa::kernels::decode_attention(p, nullptr), cudaSuccess);
    EXPECT_TRUE(Bits<__nv_bfloat16>(w).bytes == appended.bytes);
  }
}

TEST(DecodeEmulated, SeveralTokensInALaunch) {
  for (const int tokens : all_or({2, 5, 8}, 8)) {
    Case c = make("several tokens", {27, 1095, 0}, 4, 2, kDims[tokens % 3], 1200);
    c.tokens = tokens, c.steps = kOtherOrders ? 3 : 2, c.longest_first = tokens == 5;
    expect_right<__nv_bfloat16>(c, {5});
    c.unit_sums = true, c.lengths = {40, 700};
    expect_right<__half>(c, {3});
  }
}

// Wrapping rings with the fewest slots, and a window that is shorter than the new tokens.
TEST(DecodeEmulated, SeveralTokensOfOtherSizes) {
  Case c = make("several tokens of other sizes", {300, 77}, 5, 3, kDims[0], 400);
  c.l = 24, c.d = 8, c.block = 40, c.n = 7, c.initial = 2, c.local = 1, c.page = 33;
  c.tokens = 8, c.steps = 9, c.gate = GateFunction::kNone;
  for (const int window : all_or({100, 5, 1}, 5)) {
    c.window = window;
    expect_right<__nv_bfloat16>(c, {7});
  }
}

TEST(DecodeEmulated, SeveralTokensHaveTheBitsOfOneAfterTheOther) {
  for (const int length : {12, 40, 1000, 1030}) {
    Case c = make("several", {length}, 6, 2, kDims[0], 1100);
    c.tokens = 8, c.ranks = 1, c.warps = 4;
    World<__nv_bfloat16> together(c), single(c);
    together.draw_token(), single.draw_token();
    ASSERT_EQ(nsa::kernels::decode_attention(together.problem(), nullptr), cudaSuccess);
    const std::vector<__nv_bfloat16> all = together.out.host();
    DecodeAttention p = single.problem();
    p.tokens = 1;
    const int columns = c.heads() * c.dv;
    for (int token = 0; token < c.tokens; ++token) {
      ASSERT_EQ(nsa::kernels::decode_attention(p, nullptr), cudaSuccess);
      const std::vector<__nv_bfloat16> one = single.out.host();
      EXPECT_EQ(std::memcmp(one.data(), all.data() + token * columns, columns * 2), 0)
          << "token " << token << " behind " << length;
      for (Strided* x : {&p.q, &p.append.k_sel, &p.append.v_sel, &p.append.k_win, &p.append.v_win,
                         &p.append.k_cmp_src, &p.append.v_cmp_src})
        x->data = static_cast<const __nv_bfloat16*>(x->data) + x->token;
      p.gate_logits = static_cast<const __nv_bfloat16*>(p.gate_logits) + 3 * c.gates();
    }
    for (const auto& [x, y] : {std::pair{&together.win_k, &single.win_k},
                               {&together.src_v, &single.src_v},
                               {&together.compressed.k, &single.compressed.k},
                               {&together.selected.k, &single.selected.k}})
      EXPECT_EQ(std::memcmp(x->host().data(), y->host().data(), x->count * 2), 0) << length;
    EXPECT_EQ(together.num_blocks.host(), single.num_blocks.host());
    EXPECT_EQ(together.emission_reads.host(), single.emission_reads.host());
  }
}

TEST(DecodeEmulated, SeveralTokensAreRefusedByName) {
  Case c = make("refused", {100}, 4, 2, kDims[0], 1000);
  c.tokens = 8;
  World<__nv_bfloat16> w(c);
  DecodeAttention p = w.problem();
  EXPECT_EQ(nsa::kernels::unsupported_reason(p), nullptr);
  p.tokens = 9;
  EXPECT_STREQ(nsa::kernels::unsupported_reason(p), "new tokens of a sequence are not 1 to 8");
  p.tokens = 8, --p.window.num_slots;
  EXPECT_STREQ(nsa::kernels::unsupported_reason(p), "rings have no slots for several new tokens");
  ++p.window.num_slots, --p.append.source.num_slots;
  EXPECT_STREQ(nsa::kernels::unsupported_reason(p), "rings have no slots for several new tokens");
  ++p.append.source.num_slots, p.block_stride = 4;
  EXPECT_STREQ(nsa::kernels::unsupported_reason(p), "more new tokens than block_stride");
}

TEST(DecodeEmulated, OtherSizes) {
  Case c = make("other sizes", {300, 77}, 5, 3, kDims[0], 400);
  c.l = 24, c.d = 8, c.block = 40, c.n = 7, c.initial = 2, c.local = 1, c.window = 100, c.page = 33;
  c.steps = 9, c.gate = GateFunction::kNone;
  expect_right<__nv_bfloat16>(c, {7});
}

}  // namespace
