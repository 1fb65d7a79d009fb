// The caches themselves: memory, pages, rings, padding, counters, batches of different lengths.
#include "nsa/decode/step/loaded_positions.h"
#include "nsa/decode/test_util.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

std::vector<at::Tensor> memory_of(LayerCache& cache) {
  std::vector<at::Tensor> all;
  for (const KvRows* kv : {&cache.selected_tokens().kv, &cache.compressed_blocks().kv,
                           &cache.window().kv, &cache.compression_source().kv}) {
    all.push_back(kv->k);
    all.push_back(kv->v);
  }
  return all;
}

void poison(LayerCache& cache) {
  for (const at::Tensor& x : memory_of(cache)) x.fill_(kNoNumber);
}

NsaInputs tokens_of(const NsaInputs& in, int64_t t) { return narrow_tokens(in, t, 1); }

NsaInputs sequence_of(const NsaInputs& in, int64_t b) {
  return map_tokens(in, [&](const at::Tensor& x) { return x.narrow(0, b, 1); });
}

TEST(Cache, ALoadedContextIsAPrefilledOne) {
  at::manual_seed(7);
  for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone}) {
    NsaConfig c = small();
    c.rope = rope, c.phi = Phi::kConv;
    const NsaInputs in = random_inputs(c, 2, 50, at::kDouble);
    LayerCache filled(c, 2, 50, at::kDouble), loaded(c, 2, 50, at::kDouble);
    filled.prefill(in, {41, 5});
    for (const auto& [b, length] : {std::pair<int64_t, int64_t>{0, 41}, {1, 5}}) {
      NsaInputs context = sequence_of(narrow_tokens(in, 0, length), b);
      context.q = context.gate_logits = at::Tensor();
      loaded.load_context(b, context);
      EXPECT_EQ(loaded.num_tokens(b), length);
      EXPECT_TRUE(at::equal(loaded.blocks(b).first, filled.blocks(b).first));
      EXPECT_TRUE(at::equal(loaded.blocks(b).second, filled.blocks(b).second));
    }
    for (int64_t s = 0; s < 6; ++s)
      expect_same(loaded.step(tokens_of(in, 41 + s)), filled.step(tokens_of(in, 41 + s)));
    EXPECT_THAT(error_of([&] { loaded.load_context(1, sequence_of(in, 1)); }),
                HasSubstr("sequence 1 must be empty (reset it first), got 11 tokens long"));
    EXPECT_THAT(error_of([&] { loaded.load_context(2, sequence_of(in, 1)); }),
                HasSubstr("sequence must be in 0..1, got 2"));
    loaded.reset(1);
    EXPECT_THAT(error_of([&] { loaded.load_context(1, NsaInputs()); }), HasSubstr("k_sel"));
    LayerCache shorter(c, 2, 49, at::kDouble);
    EXPECT_THAT(error_of([&] { shorter.load_context(0, sequence_of(in, 0)); }),
                HasSubstr("at most capacity = 49"));
    EXPECT_EQ(shorter.num_tokens(0), 0);
  }
}

TEST(Cache, MemoryIsTakenOnceAndStaleContentNeverRead) {
  const NsaConfig c = small();
  at::manual_seed(1);
  const NsaInputs in = random_inputs(c, 2, 40, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  for (const CacheLayout layout : {CacheLayout::kPaged, CacheLayout::kContiguous}) {
    LayerCache cache(c, 2, 40, at::kDouble, {layout});
    poison(cache);
    const std::vector<at::Tensor> before = memory_of(cache);
    const NsaInputs padded = map_tokens(in, [](const at::Tensor& x) {
      at::Tensor copy = x.clone();
      copy[0].slice(0, 9).fill_(kNoNumber);
      copy[1].slice(0, 23).fill_(kNoNumber);
      return copy;
    });
    cache.prefill(padded, {9, 23});
    for (int64_t s = 0; s < 17; ++s) {
      const NsaInputs one = map_tokens(in, [&](const at::Tensor& x) {
        return at::stack({x[0].narrow(0, 9 + s, 1), x[1].narrow(0, 23 + s, 1)});
      });
      const at::Tensor o = cache.step(one).o;
      expect_near(o, at::stack({want.o[0].narrow(0, 9 + s, 1), want.o[1].narrow(0, 23 + s, 1)}),
                  1e-12);
    }
    const std::vector<at::Tensor> after = memory_of(cache);
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(before[i].data_ptr(), after[i].data_ptr());
    }
  }
}

TEST(Cache, PagedAndContiguousAreBitEqual) {
  const NsaConfig c = small();
  at::manual_seed(2);
  const NsaInputs in = random_inputs(c, 3, 50);
  const std::vector<int64_t> prefill{0, 20, 31};
  const DecodeOutputs want = decode_attention(in, c, {}, prefill, {CacheLayout::kContiguous});
  for (const int64_t page : {0, 1, 7, 64}) {
    const DecodeOutputs have = decode_attention(in, c, {}, prefill, {CacheLayout::kPaged, page});
    EXPECT_TRUE(at::equal(have.o, want.o)) << page;
    EXPECT_TRUE(at::equal(have.reads, want.reads)) << page;
    EXPECT_TRUE(at::equal(have.k_cmp, want.k_cmp)) << page;
  }
}

TEST(Cache, PrefillIntoANonEmptyCacheEqualsThatManySteps) {
  const NsaConfig c = small();
  at::manual_seed(3);
  const NsaInputs in = random_inputs(c, 3, 45, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  LayerCache cache(c, 3, 45, at::kDouble);
  const std::vector<int64_t> first{13, 0, 30};
  cache.prefill(in, first);
  // 12 more for sequence 0 by steps, 25 for the empty sequence 1 at once, none for sequence 2.
  const std::vector<int64_t> more{12, 25, 0};
  const NsaInputs next = map_tokens(in, [&](const at::Tensor& x) {
    return at::stack({x[0].narrow(0, 13, 30), x[1].narrow(0, 0, 30), x[2].narrow(0, 10, 30)});
  });
  const DecodeOutputs out = cache.prefill(next, more);
  EXPECT_EQ(out.o.sizes(), at::IntArrayRef({3, 30, 4, 6}));
  expect_near(out.o[0].narrow(0, 0, 12), want.o[0].narrow(0, 13, 12), 1e-12);
  expect_near(out.o[1].narrow(0, 0, 25), want.o[1].narrow(0, 0, 25), 1e-12);
  EXPECT_EQ(out.o[2].abs().sum().item<double>(), 0);
  EXPECT_EQ(out.block_idx[2].max().item<int>(), -1);
  EXPECT_TRUE(out.lse_win[2].isneginf().all().item<bool>());
  for (const auto& [b, length] : {std::pair{0, 25}, std::pair{1, 25}, std::pair{2, 30}}) {
    EXPECT_EQ(cache.num_tokens(b), length);
    EXPECT_EQ(cache.num_blocks(b), c.num_compressed(length));
    expect_near(cache.blocks(b).first, want.k_cmp[b].narrow(0, 0, c.num_compressed(length)), 1e-13);
    expect_near(cache.step(tokens_of(sequence_of(in, b), length), {}, {{b}}).o[0],
                want.o[b].narrow(0, length, 1), 1e-12);
  }
}

TEST(Cache, SequencesThatPauseAreLeftAlone) {
  const NsaConfig c = small();
  at::manual_seed(4);
  const NsaInputs in = random_inputs(c, 3, 30, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  LayerCache cache(c, 3, 30, at::kDouble);
  std::vector<int64_t> t(3, 0);
  at::Tensor order = at::randint(1, 7, {60}, at::kLong);  // a set of sequences, never empty
  for (int64_t s = 0; s < 60; ++s) {
    std::vector<int64_t> active;
    std::vector<NsaInputs> parts;
    for (int64_t b = 2; b >= 0; --b) {  // not in ascending order
      const bool chosen = (order[s].item<int64_t>() >> b) & 1;
      if (chosen && t[static_cast<size_t>(b)] < 30) active.push_back(b);
    }
    if (active.empty()) continue;
    NsaInputs one = in;
    const auto gather = [&](const at::Tensor& x) {
      std::vector<at::Tensor> rows;
      for (const int64_t b : active) rows.push_back(x[b].narrow(0, t[static_cast<size_t>(b)], 1));
      return at::stack(rows);
    };
    const DecodeOutputs out = cache.step(map_tokens(in, gather), {}, active);
    expect_near(out.o, gather(want.o), 1e-12);
    for (const int64_t b : active) ++t[static_cast<size_t>(b)];
  }
  EXPECT_EQ(
      cache
          .step(
              map_tokens(in, [](const at::Tensor& x) { return x.narrow(0, 0, 0).narrow(1, 0, 1); }),
              {}, std::vector<int64_t>{})
          .o.size(0),
      0);
}

TEST(Cache, PagesComeFromThePoolAndGoBack) {
  const NsaConfig c = small();
  at::manual_seed(5);
  const NsaInputs in = random_inputs(c, 2, 40, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  LayerCache cache(c, 2, 40, at::kDouble, {CacheLayout::kPaged, 8, 48});
  EXPECT_EQ(cache.selected_tokens().free_pages(), 6);
  cache.prefill(in, {32, 16});
  EXPECT_EQ(cache.selected_tokens().free_pages(), 0);
  EXPECT_THAT(
      error_of([&] { cache.step(tokens_of(in, 0)); }),
      HasSubstr("nsa::DecodeCache: pages of 8 tokens must be at most the 0 free ones (raise "
                "pool_tokens or reset a sequence), got 2"));
  EXPECT_EQ(cache.num_tokens(0), 32);  // nothing changed
  cache.reset(0);
  EXPECT_EQ(cache.selected_tokens().free_pages(), 4);
  EXPECT_EQ(cache.counters().padding_loads[0].sum().item<int64_t>(), 0);
  poison(cache);  // what is left of sequence 0 must not matter, and sequence 1 is begun anew
  cache.reset(1);
  const DecodeOutputs again = cache.prefill(in, {24, 24});
  expect_near(again.o.narrow(1, 0, 24), want.o.narrow(1, 0, 24), 1e-12);
  EXPECT_EQ(cache.selected_tokens().free_pages(), 0);
}

TEST(Cache, ThePoolOfBlocksNeverRunsOutBeforeThatOfTokens) {
  NsaConfig c = small();
  c.block_size = c.block_stride = 1;  // a block a token: the most there can be
  const NsaInputs in = random_inputs(c, 3, 24);
  LayerCache cache(c, 3, 24, at::kFloat, {CacheLayout::kPaged, 4, 36});
  cache.prefill(in, {4, 12, 20});
  EXPECT_EQ(cache.num_blocks(2), 20);
  EXPECT_EQ(cache.selected_tokens().free_pages(), 0);
}

TEST(Cache, CountsPaddingEmissionsAndSecondPasses) {
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 20);
  LayerCache cache(c, 2, 20, at::kFloat);
  cache.prefill(in, {11, 3});
  EXPECT_EQ(cache.counters().emission_reads.sum().item<int64_t>(), 0);
  cache.step(tokens_of(in, 11));  // t = 11 completes block 1 of sequence 0; sequence 1 is at t = 3
  EXPECT_TRUE(
      at::equal(cache.counters().emission_reads, at::tensor({8, 8, 0, 0}, at::kLong).view({2, 2})));
  // As many rows as the longer sequence needs: 2 blocks, 12 tokens, 12 window keys.
  EXPECT_TRUE(
      at::equal(cache.counters().padding_loads[1][0], at::tensor({2, 12 - 4, 12 - 4}, at::kLong)));
  EXPECT_EQ(cache.counters().padding_loads[0].sum().item<int64_t>(), 0);
  EXPECT_EQ(cache.counters().second_pass_reads.sum().item<int64_t>(), 0);

  LoadCount count;
  const KvRows rows = KvRows::allocate(c, 4, at::kFloat);
  const at::Tensor index = at::tensor({3, -1, 0}, at::kLong).view({1, 1, 3});
  EXPECT_EQ(load(rows, index, count).k.sizes(), at::IntArrayRef({1, 2, 3, 8}));
  load(rows, index, count);
  EXPECT_TRUE(at::equal(count.loaded, at::full({1, 2}, 2, at::kLong)));
  EXPECT_TRUE(at::equal(count.masked, at::full({1, 2}, 2, at::kLong)));
  EXPECT_TRUE(at::equal(count.repeated, at::full({1, 2}, 2, at::kLong)));
}

TEST(Cache, LostCompressionTailShowsInTheReads) {
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 1, 30);
  LayerCache cache(c, 1, 30, at::kFloat);
  cache.prefill(in, {14});
  cache.compression_source().clear(0);
  int64_t short_rows = 0;
  for (int64_t t = 14; t < 30; ++t) {
    const at::Tensor reads = cache.step(tokens_of(in, t)).reads;
    short_rows += reads[0][0][0][0].item<int64_t>() != c.num_compressed(t + 1);
  }
  EXPECT_EQ(short_rows, 30 - 15);  // from t = 15 on a block is missing
}

TEST(Cache, MemoryIsLinear) {
  const NsaConfig c = small();
  const auto bytes = [&](int64_t capacity) {
    return LayerCache(c, 2, capacity, at::kFloat).bytes();
  };
  EXPECT_EQ(bytes(4096) - bytes(2048), bytes(2048) - bytes(1024) + bytes(2048) - bytes(1024));
}

TEST(LoadedPositions, UnionOfAnyIntervals) {
  at::manual_seed(6);
  const at::Tensor ranges = at::randint(-3, 20, {40, 2, 4, 2}, at::kLong).to(at::kInt);
  const at::Tensor t = at::randint(0, 16, {40}, at::kLong);
  const at::Tensor rows_loaded = range_positions(ranges, t, 16);
  for (int64_t row = 0; row < 80; ++row) {
    std::vector<int64_t> want(16, -1);
    size_t place = 0;
    for (int64_t token = 0; token <= t[row / 2].item<int64_t>(); ++token) {
      bool inside = false;
      for (int64_t i = 0; i < 4; ++i) {
        const at::Tensor interval = ranges[row / 2][row % 2][i];
        inside |= interval[0].item<int>() <= token && token < interval[1].item<int>();
      }
      if (inside) want[place++] = token;
    }
    ASSERT_TRUE(at::equal(rows_loaded[row / 2][row % 2], at::tensor(want, at::kLong))) << row;
  }
}

TEST(Cache, ReservedRoomIsThereAndAccountedFor) {
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 9);
  LayerCacheOptions memory;
  memory.pool_tokens = 64;  // 4 pages of 16
  LayerCache cache(c, 2, 60, at::kFloat, memory);
  cache.prefill(in, {9, 0});
  cache.reserve(20);
  EXPECT_EQ(cache.selected_tokens().free_pages(), 0);
  EXPECT_EQ(cache.selected_tokens().room(1), 32);
  EXPECT_THAT(error_of([&] { cache.reserve(33); }),
              HasSubstr("pages of 16 tokens must be at most"));
  EXPECT_THAT(error_of([&] { cache.reserve(61); }), HasSubstr("must be at most capacity = 60"));
  for (int64_t i = 0; i < 23; ++i) cache.before_replay();
  EXPECT_EQ(cache.num_tokens(0), 32);
  EXPECT_EQ(cache.num_blocks(0), c.num_compressed(32));
  EXPECT_EQ(cache.num_blocks(1), c.num_compressed(23));
  EXPECT_THAT(error_of([&] { cache.before_replay(); }),
              HasSubstr("tokens of sequence 0 must be at most the reserved 32, got 33"));
  EXPECT_EQ(cache.num_tokens(1), 23);  // nothing changed
}

TEST(Cache, BadArgumentsAreNamed) {
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 9);
  LayerCache cache(c, 2, 9, at::kFloat);
  const NsaInputs token = tokens_of(in, 0);
  EXPECT_THAT(error_of([&] { cache.step(token, {}, {{0}}); }),
              HasSubstr("q must be [sequences, S, Hq, dk] = [1, any, any, any]"));
  EXPECT_THAT(error_of([&] { cache.step(token, {}, {{0, 0}}); }),
              HasSubstr("sequences must be different numbers in 0..1, got 0"));
  EXPECT_THAT(error_of([&] { cache.step(token, {}, {{0, 2}}); }),
              HasSubstr("sequences must be different numbers in 0..1, got 2"));
  EXPECT_THAT(error_of([&] { cache.prefill(in, {1}); }),
              HasSubstr("lengths must be 2 numbers, one a sequence, got 1"));
  EXPECT_THAT(error_of([&] { cache.prefill(in, {1, 10}); }),
              HasSubstr("lengths must be in 0..S = 9, got 10"));
  EXPECT_THAT(error_of([&] { cache.reset(2); }), HasSubstr("sequence must be in 0..1, got 2"));
  const NsaInputs wide = map_tokens(token, [](const at::Tensor& x) { return x.to(at::kDouble); });
  EXPECT_THAT(error_of([&] { cache.step(wide); }),
              HasSubstr("q must be Float like the cache, got Double"));
  NsaOptions given;
  given.block_idx = at::zeros({2, 1, 2}, at::kInt);
  EXPECT_THAT(error_of([&] { cache.step(token, given); }),
              HasSubstr("block_idx must be of rank 4 [sequences, S, Hkv, n], got shape [2, 1, 2]"));
  EXPECT_EQ(cache.num_tokens(0), 0);  // nothing changed
  EXPECT_THAT(error_of([&] { LayerCache(c, -1, 9, at::kFloat); }),
              HasSubstr("num_sequences must be at least 0, got -1"));
  cache.prefill(in, {9, 0});
  EXPECT_THAT(error_of([&] { cache.step(token); }),
              HasSubstr("tokens of sequence 0 must be at most capacity = 9 (make the cache larger "
                        "or reset the sequence), got 10"));
  EXPECT_EQ(cache.num_tokens(1), 0);  // nothing changed
}

}  // namespace
}  // namespace nsa
