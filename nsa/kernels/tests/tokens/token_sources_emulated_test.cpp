// Rotated copies and means of blocks in the emulator, against their formulas: Eq. 7 of the paper
// with the mean as phi, blocks [i d, i d + l).
#include "nsa/kernels/tokens/token_sources.cu"

#include "nsa/kernels/tests/tokens/near.h"
#include "nsa/kernels/tests/tokens/test_rotations.h"

namespace nsa::kernels::emulator {
namespace {

struct PoolOf {
  int heads, dim;
  bool rotated;
};
struct SourcesCase {
  int batch, tokens, size, stride, dim;  // block size and stride; dim of what is rotated
  std::vector<int> copies;               // heads
  std::vector<PoolOf> pools;
  bool half = false;
  int gap = 0;
  int blocks() const { return tokens < size ? 0 : (tokens - size) / stride + 1; }
};

struct Left {
  std::vector<std::vector<uint16_t>> copies, pools;
  bool operator==(const Left&) const = default;
};

struct SourcesProblem {
  SourcesCase c;
  std::vector<Numbers> copied, pooled;
  std::vector<float2> cos_sin;

  explicit SourcesProblem(const SourcesCase& which)
      : c(which), cos_sin(cos_sin_for_test(c.tokens, c.dim)) {
    for (const int heads : c.copies) copied.push_back(tensor(heads, c.dim));
    for (const PoolOf& of : c.pools) pooled.push_back(tensor(of.heads, of.dim));
  }
  Numbers tensor(int heads, int dim) const {
    Numbers x(c.batch, c.tokens, heads, dim, c.half, c.gap);
    return x.draw(copied.size() + 10 * pooled.size(), 1.f);
  }
  TokenSources launched(Left& to) const {
    TokenSources p;
    for (const Numbers& x : copied) {
      to.copies.push_back(unwritten(size_t(c.batch) * c.tokens * x.heads * x.dim));
      p.copy[p.num_copies++] = {x.strided(), to.copies.back().data(), x.heads};
    }
    for (const Numbers& x : pooled) {
      to.pools.push_back(unwritten(size_t(c.batch) * c.blocks() * x.heads * x.dim));
      p.pool[p.num_pools] = {x.strided(), to.pools.back().data(), x.heads, x.dim,
                             c.pools[p.num_pools].rotated};
      ++p.num_pools;
    }
    p.batch = c.batch, p.num_tokens = c.tokens, p.num_blocks = c.blocks();
    p.block_size = c.size, p.block_stride = c.stride, p.qk_head_dim = c.dim;
    p.cos_sin = cos_sin.data(), p.element = c.half ? Element::kHalf : Element::kBFloat16;
    return p;
  }
  Left run() const {
    Left to;
    EXPECT_EQ(token_sources(launched(to), nullptr), cudaSuccess);
    return to;
  }

  /// One column of a token, rotated: rounded to fp32, where all but its last sum is exact, and to
  /// the type.
  uint16_t rotated(const Numbers& x, int b, int t, int head, int column) const {
    const float2 angle = cos_sin[t * (c.dim / 2) + column / 2];
    const double even = x.at(b, t, head, column / 2 * 2),
                 odd = x.at(b, t, head, column / 2 * 2 + 1);
    return twice_rounded(column % 2 == 0 ? even * double{angle.x} - odd * double{angle.y}
                                         : even * double{angle.y} + odd * double{angle.x},
                         c.half);
  }
  std::vector<uint16_t> wanted_copy(const Numbers& x) const {
    std::vector<uint16_t> all;
    for (int b = 0; b < c.batch; ++b)
      for (int t = 0; t < c.tokens; ++t)
        for (int h = 0; h < x.heads; ++h)
          for (int i = 0; i < x.dim; ++i) all.push_back(rotated(x, b, t, h, i));
    return all;
  }
  std::vector<Near> wanted_means(const Numbers& x, bool turned) const {
    std::vector<Near> all;
    for (int b = 0; b < c.batch; ++b)
      for (int block = 0; block < c.blocks(); ++block)
        for (int h = 0; h < x.heads; ++h)
          for (int i = 0; i < x.dim; ++i) {
            Sum sum;
            for (int t = block * c.stride; t < block * c.stride + c.size; ++t)
              sum += turned ? value_of(rotated(x, b, t, h, i), c.half) : x.at(b, t, h, i);
            all.push_back(sum.after(c.size) / Near(c.size));
          }
    return all;
  }
};

/// Of a NaN any bits.
void expect_same(const std::vector<uint16_t>& have, const std::vector<uint16_t>& want, bool half) {
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_TRUE(have[i] == want[i] ||
                (std::isnan(value_of(have[i], half)) && std::isnan(value_of(want[i], half))))
        << "copy[" << i << "] is " << value_of(have[i], half) << ", not "
        << value_of(want[i], half);
}

void expect_right(const SourcesProblem& x) {
  const Left have = in_every_order([&] { return x.run(); });
  for (size_t i = 0; i < x.copied.size(); ++i)
    expect_same(have.copies[i], x.wanted_copy(x.copied[i]), x.c.half);
  for (size_t i = 0; i < x.pooled.size(); ++i)
    expect_numbers(have.pools[i], x.wanted_means(x.pooled[i], x.c.pools[i].rotated), x.c.half,
                   "means");
}

TEST(TokenSourcesEmulated, CopiesAreRotatedAndBlocksAreMeans) {
  for (const bool half : {false, true}) {
    expect_right(
        SourcesProblem({2, 37, 8, 4, 64, {6, 2, 2}, {{2, 64, true}, {2, 128, false}}, half}));
    expect_right(SourcesProblem({1, 21, 5, 5, 24, {3}, {{1, 24, true}, {3, 8, false}}, half, 8}));
    expect_right(SourcesProblem({2, 33, 16, 8, 40, {1, 2}, {{2, 16, false}, {2, 40, true}}, half}));
  }
}

TEST(TokenSourcesEmulated, LengthsAroundABlock) {
  for (const int tokens : {1, 7, 8, 9, 11, 12})
    expect_right(SourcesProblem({2, tokens, 8, 4, 16, {2, 1}, {{1, 16, true}, {1, 8, false}}}));
}

TEST(TokenSourcesEmulated, RowsWiderThanABlockOfThreads) {
  expect_right(SourcesProblem({1, 12, 4, 2, 128, {16, 1, 1}, {{9, 128, true}, {16, 128, false}}}));
}

TEST(TokenSourcesEmulated, CopiesOrMeansAlone) {
  expect_right(SourcesProblem({1, 20, 4, 2, 16, {2, 2}, {}}));
  expect_right(SourcesProblem({2, 20, 4, 2, 16, {}, {{2, 24, false}}}));
  expect_right(SourcesProblem({2, 20, 4, 2, 16, {}, {}}));
}

TEST(TokenSourcesEmulated, NonFiniteValuesReachTheirPairAndBlocks) {
  for (const float bad : {float(NAN), float(INFINITY), -float(INFINITY)}) {
    SourcesProblem x({1, 40, 8, 4, 16, {2}, {{2, 16, true}, {1, 16, false}}});
    x.copied[0].set(0, 9, 1, 4, bad);
    for (Numbers& pooled : x.pooled) {
      pooled.set(0, 17, 0, 3, bad);
      pooled.set(0, 39, 0, 9, bad);  // a token of the last block
    }
    expect_right(x);
  }
}

TEST(TokenSourcesEmulated, EmptySequencesHaveNothing) {
  for (const auto& [batch, tokens] : {std::pair(2, 0), std::pair(0, 9)}) {
    const SourcesProblem x({batch, tokens, 4, 2, 16, {2, 1}, {{1, 16, true}, {1, 8, false}}});
    const Left left = x.run();
    for (const auto& one : left.copies) EXPECT_TRUE(one.empty());
    for (const auto& one : left.pools) EXPECT_TRUE(one.empty());
  }
}

TEST(TokenSourcesEmulated, RefusesSizesWithoutKernel) {
  const SourcesProblem x({1, 9, 4, 2, 16, {1}, {{1, 16, false}, {1, 16, true}}});
  const auto status = [&](auto change) {
    Left to;
    TokenSources p = x.launched(to);
    change(p);
    return token_sources(p, nullptr);
  };
  const cudaError_t refused = cudaErrorInvalidValue;
  EXPECT_EQ(status([](TokenSources&) {}), cudaSuccess);
  EXPECT_EQ(status([](TokenSources& p) { p.cos_sin = nullptr; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.num_copies = 0, p.cos_sin = nullptr; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.qk_head_dim = 24; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.num_pools = 0, p.qk_head_dim = 12; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.pool[0].head_dim = 12; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.block_size = 0; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.block_stride = 0; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.num_copies = 4; }), refused);
  EXPECT_EQ(status([](TokenSources& p) { p.num_pools = 3; }), refused);
}

}  // namespace
}  // namespace nsa::kernels::emulator
