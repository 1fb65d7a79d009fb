// Steps of several tokens, and taking tokens back: each is what one token after the other gives.
#include "nsa/decode/step/active_sequences.h"
#include "nsa/decode/test_util.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

NsaInputs part(const NsaInputs& in, int64_t first, int64_t count) {
  return narrow_tokens(in, first, count);
}

NsaInputs sequence(const NsaInputs& in, int64_t b) {
  return map_tokens(in, [&](const at::Tensor& x) { return x.narrow(0, b, 1); });
}

TEST(SeveralTokens, AreOneAfterTheOther) {
  const NsaConfig c = small();
  at::manual_seed(1);
  const NsaInputs in = random_inputs(c, 2, 60, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  for (const int64_t count : {1, 2, 3, 8, 11}) {
    LayerCache cache(c, 2, 60, at::kDouble), single(c, 2, 60, at::kDouble);
    cache.prefill(part(in, 0, 5), {5, 5});
    single.prefill(part(in, 0, 5), {5, 5});
    for (int64_t t = 5; t + count <= 60; t += count) {
      const DecodeOutputs out = cache.step(part(in, t, count));
      ASSERT_EQ(out.o.size(1), count);
      ASSERT_TRUE(at::equal(out.block_idx, want.block_idx.narrow(1, t, count)));
      expect_near(out.o, want.o.narrow(1, t, count), 1e-12);
      for (int64_t i = 0; i < count; ++i) {
        const DecodeOutputs one = single.step(part(in, t + i, 1));
        EXPECT_TRUE(at::equal(out.o.narrow(1, i, 1), one.o));
        EXPECT_TRUE(at::equal(out.reads.narrow(1, i, 1), one.reads));
      }
    }
    EXPECT_TRUE(at::equal(cache.counters().emission_reads, single.counters().emission_reads));
  }
}

TEST(SeveralTokens, OfSomeSequencesWithGivenBlocks) {
  const NsaConfig c = small();
  at::manual_seed(2);
  const NsaInputs in = random_inputs(c, 3, 50, at::kDouble);
  NsaOptions all;
  all.block_idx = nsa_attention(in, c).block_idx.flip({0});  // of another sequence each
  const NsaOutputs want = nsa_attention(in, c, all);
  LayerCache cache(c, 3, 50, at::kDouble);
  cache.prefill(in, {40, 0, 43});
  NsaOptions given;
  given.block_idx =
      at::stack({all.block_idx[2].narrow(0, 43, 4), all.block_idx[0].narrow(0, 40, 4)});
  const NsaInputs next = map_tokens(in, [](const at::Tensor& x) {
    return at::stack({x[2].narrow(0, 43, 4), x[0].narrow(0, 40, 4)});
  });
  const DecodeOutputs out = cache.step(next, given, {{2, 0}});
  expect_near(out.o[0], want.o[2].narrow(0, 43, 4), 1e-12);
  expect_near(out.o[1], want.o[0].narrow(0, 40, 4), 1e-12);
  EXPECT_EQ(cache.num_tokens(0), 44);
  EXPECT_EQ(cache.num_tokens(1), 0);
}

TEST(SeveralTokens, LaunchesBeginWithTheLongestSequence) {
  EXPECT_EQ(longest_first({5, 900, 5, 0, 1000}), (std::vector<int32_t>{4, 1, 0, 2, 3}));
  EXPECT_EQ(longest_first({7, 7}), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(longest_first({}).empty());
}

// Speculative decoding: eight drafted tokens, of which some are kept.
TEST(SeveralTokens, ThatAreTakenBackLeaveNothing) {
  const NsaConfig c = small();
  at::manual_seed(3);
  const NsaInputs in = random_inputs(c, 2, 60, at::kDouble),
                  drafts = random_inputs(c, 2, 60, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  LayerCache cache(c, 2, 60, at::kDouble);
  cache.prefill(in, {13, 13});
  for (int64_t t = 13, round = 0; t < 50; ++round) {
    const int64_t kept = round % 8;  // of these the drafts are right
    const auto draft = [&](const at::Tensor& x, const at::Tensor& wrong) {
      return at::cat({x.narrow(1, t, kept), wrong.narrow(1, t, 8 - kept)}, 1);
    };
    NsaInputs tokens = part(drafts, t, 8);
    tokens.q = draft(in.q, drafts.q),
    tokens.gate_logits = draft(in.gate_logits, drafts.gate_logits);
    tokens.k_sel = draft(in.k_sel, drafts.k_sel), tokens.v_sel = draft(in.v_sel, drafts.v_sel);
    tokens.k_win = draft(in.k_win, drafts.k_win), tokens.v_win = draft(in.v_win, drafts.v_win);
    tokens.k_cmp_src = draft(in.k_cmp_src, drafts.k_cmp_src);
    tokens.v_cmp_src = draft(in.v_cmp_src, drafts.v_cmp_src);
    const DecodeOutputs out = cache.step(tokens);
    expect_near(out.o.narrow(1, 0, kept), want.o.narrow(1, t, kept), 1e-12);
    for (int64_t b = 0; b < 2; ++b) {
      cache.truncate(b, t + kept);
      ASSERT_EQ(cache.num_tokens(b), t + kept);
      ASSERT_EQ(cache.num_blocks(b), c.num_compressed(t + kept));
    }
    t += kept;
    expect_near(cache.step(part(in, t, 1)).o, want.o.narrow(1, t, 1), 1e-12);
    ++t;
  }
}

TEST(SeveralTokens, OnlyWhatTheRingsReachIsTakenBack) {
  const NsaConfig c = small();  // window 12: its ring has 19 slots, that of the source 15
  const NsaInputs in = random_inputs(c, 2, 60, at::kDouble);
  LayerCache cache(c, 2, 60, at::kDouble);
  cache.prefill(in, {40, 11});
  EXPECT_THAT(error_of([&] { cache.truncate(2, 1); }),
              HasSubstr("sequence must be in 0..1, got 2"));
  EXPECT_THAT(error_of([&] { cache.truncate(0, 41); }),
              HasSubstr("num_tokens of sequence 0 must be in 0..40, got 41"));
  EXPECT_THAT(error_of([&] { cache.truncate(0, -1); }), HasSubstr("must be in 0..40, got -1"));
  EXPECT_THAT(error_of([&] { cache.truncate(0, 31); }),
              HasSubstr("num_tokens of sequence 0 must be at least 32, as the caches of its window "
                        "and of the latest tokens hold no older ones"));
  EXPECT_EQ(cache.num_tokens(0), 40);  // nothing changed
  const NsaOutputs want = nsa_attention(in, c);
  cache.truncate(0, 32);
  cache.truncate(1, 0);
  EXPECT_THAT(error_of([&] { cache.truncate(0, 31); }), HasSubstr("must be at least 32"));
  expect_near(cache.step(sequence(part(in, 32, 8), 0), {}, {{0}}).o[0], want.o[0].narrow(0, 32, 8),
              1e-12);
  expect_near(cache.prefill(in, {0, 60}).o[1], want.o[1], 1e-12);
  EXPECT_THAT(error_of([&] { cache.step(part(in, 0, 0)); }),
              HasSubstr("tokens of a step (axis 1 of q) must be at least 1, got 0"));
}

TEST(SeveralTokens, HaveRoomOrChangeNothing) {
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 20, at::kDouble);
  LayerCache cache(c, 2, 20, at::kDouble);
  cache.prefill(in, {15, 3});
  EXPECT_THAT(error_of([&] { cache.step(part(in, 0, 6)); }),
              HasSubstr("tokens of sequence 0 must be at most capacity = 20"));
  EXPECT_EQ(cache.num_tokens(0), 15);
  EXPECT_EQ(cache.num_tokens(1), 3);
  cache.step(part(in, 0, 5));
  EXPECT_EQ(cache.num_tokens(0), 20);
  cache.before_replay(0);
  EXPECT_THAT(error_of([&] { cache.before_replay(8); }), HasSubstr("got 28"));
}

}  // namespace
}  // namespace nsa
