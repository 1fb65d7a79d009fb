// Gradients of token tensors in the emulator, against their formula: the sum of the terms and of
// the means' shares, turned back.
#include "nsa/kernels/tokens/token_gradients.cu"

#include "nsa/kernels/tests/tokens/near.h"
#include "nsa/kernels/tests/tokens/test_rotations.h"

namespace nsa::kernels::emulator {
namespace {

struct GradientOf {
  int heads, dim, terms;
  bool blocks = false, rotated = false;
  int tokens = -1, gap = 0;  // of a sequence; between tokens of the result
  bool in_place = false;     // the result is the first term
};
struct GradientsCase {
  int batch, tokens, size, stride, dim;
  std::vector<GradientOf> of;
  bool half = false;
  int blocks() const { return tokens < size ? 0 : (tokens - size) / stride + 1; }
};

struct GradientsProblem {
  GradientsCase c;
  std::vector<std::vector<Numbers>> terms;
  std::vector<Numbers> means;  // their gradients
  std::vector<float2> cos_sin;

  explicit GradientsProblem(const GradientsCase& which)
      : c(which), cos_sin(cos_sin_for_test(c.tokens, c.dim)) {
    for (const GradientOf& of : c.of) {
      terms.emplace_back();
      for (int i = 0; i < of.terms; ++i)
        terms.back().push_back(
            Numbers(c.batch, c.tokens, of.heads, of.dim, c.half).draw(terms.size() * 10 + i, 1.f));
      means.push_back(
          Numbers(c.batch, c.blocks(), of.heads, of.dim, c.half).draw(100 + terms.size(), 2.f));
    }
  }
  int64_t row(size_t i) const { return c.of[i].heads * c.of[i].dim; }
  int64_t out_row(size_t i) const { return row(i) + c.of[i].gap; }

  /// All results as they lie; of one in the place of a term, what is left there.
  using Left = std::vector<std::vector<uint16_t>>;
  /// What the results are before.
  Left before() const {
    Left to;
    for (size_t i = 0; i < c.of.size(); ++i)
      to.push_back(c.of[i].in_place ? terms[i][0].bits
                                    : unwritten(size_t(c.batch) * c.tokens * out_row(i)));
    return to;
  }
  TokenGradients launched(Left& to) const {
    TokenGradients p;
    for (const GradientOf& of : c.of) {
      TokenGradients::Of& next = p.of[p.count];
      for (int i = 0; i < of.terms; ++i)
        next.term[i] = i == 0 && of.in_place ? to[p.count].data() : terms[p.count][i].bits.data();
      next.blocks = of.blocks ? means[p.count].bits.data() : nullptr;
      next.out = to[p.count].data(), next.out_stride = of.gap > 0 ? out_row(p.count) : 0;
      next.tokens = of.tokens, next.num_heads = of.heads, next.head_dim = of.dim;
      next.rotated = of.rotated;
      ++p.count;
    }
    p.batch = c.batch, p.num_tokens = c.tokens, p.num_blocks = c.blocks();
    p.block_size = c.size, p.block_stride = c.stride, p.qk_head_dim = c.dim;
    p.cos_sin = cos_sin.data(), p.element = c.half ? Element::kHalf : Element::kBFloat16;
    return p;
  }
  Left run() const {
    Left to = before();
    EXPECT_EQ(token_gradients(launched(to), nullptr), cudaSuccess);
    return to;
  }

  Near sum_of(size_t i, int b, int t, int head, int column) const {
    Sum shares;
    for (int block = 0; block < c.blocks() && c.of[i].blocks; ++block)
      if (t >= block * c.stride && t < block * c.stride + c.size)
        shares += means[i].at(b, block, head, column);
    Sum sum;
    for (const Numbers& term : terms[i]) sum += term.at(b, t, head, column);
    sum += shares.after(c.size / c.stride + 1) / Near(c.size);
    return sum.after(5);
  }
  Near wanted(size_t i, int b, int t, int head, int column) const {
    if (!c.of[i].rotated) return sum_of(i, b, t, head, column);
    const float2 angle = cos_sin[t * (c.dim / 2) + column / 2];
    const Near even = sum_of(i, b, t, head, column / 2 * 2),
               odd = sum_of(i, b, t, head, column / 2 * 2 + 1);
    return column % 2 == 0 ? even * angle.x + odd * angle.y : odd * angle.x - even * angle.y;
  }
};

/// What is asked for is right, all else untouched.
void expect_right(const GradientsProblem& x) {
  const auto all = in_every_order([&] { return x.run(); });
  const auto before = x.before();
  for (size_t i = 0; i < all.size(); ++i) {
    const GradientOf& of = x.c.of[i];
    const int64_t row = x.row(i);
    for (int64_t at = 0; at < int64_t(all[i].size()); at += x.out_row(i)) {
      const int b = int(at / x.out_row(i) / x.c.tokens), t = int(at / x.out_row(i) % x.c.tokens);
      const bool asked = of.tokens < 0 || t < of.tokens;
      std::vector<uint16_t> have(all[i].begin() + at, all[i].begin() + at + row);
      EXPECT_TRUE(std::equal(all[i].begin() + at + (asked ? row : 0),
                             all[i].begin() + at + x.out_row(i),
                             before[i].begin() + at + (asked ? row : 0)))
          << "tensor " << i << ", sequence " << b << ", token " << t << ": written beside";
      if (!asked) continue;
      std::vector<Near> want;
      for (int column = 0; column < row; ++column)
        want.push_back(x.wanted(i, b, t, column / of.dim, column % of.dim));
      expect_numbers(have, want, x.c.half, "gradient");
    }
  }
}

TEST(TokenGradientsEmulated, TermsAndSharesOfMeansAreRotatedBack) {
  for (const bool half : {false, true})
    expect_right(GradientsProblem({2,
                                   37,
                                   8,
                                   4,
                                   64,
                                   {{6, 64, 3, false, true},
                                    {2, 64, 1, true, true},
                                    {2, 128, 1, true},
                                    {2, 64, 4, true, true},
                                    {2, 24, 2},
                                    {1, 8, 0, true},
                                    {2, 128, 1}},
                                   half}));
}

TEST(TokenGradientsEmulated, FirstTokensAlone) {  // where the others are joined elsewhere
  for (const int tokens : {0, 1, 16, 19})
    expect_right(GradientsProblem({2,
                                   19,
                                   8,
                                   4,
                                   32,
                                   {{3, 32, 3, false, true, tokens},
                                    {1, 32, 1, true, true},
                                    {3, 32, 2, false, true, tokens, 16}}}));
}

TEST(TokenGradientsEmulated, ResultsWithGapsAndInThePlaceOfATerm) {
  expect_right(GradientsProblem({2,
                                 23,
                                 6,
                                 3,
                                 40,
                                 {{2, 40, 2, false, true, -1, 24},
                                  {2, 40, 2, true, true, -1, 0, true},
                                  {1, 16, 1, true, false, 9, 0, true}}}));
}

TEST(TokenGradientsEmulated, LengthsAroundABlock) {
  for (const int tokens : {1, 7, 8, 9, 11, 12})
    expect_right(
        GradientsProblem({2, tokens, 8, 4, 16, {{2, 16, 1, true, true}, {1, 8, 0, true}}}));
}

TEST(TokenGradientsEmulated, RowsWiderThanABlockOfThreads) {
  expect_right(GradientsProblem({1, 3, 2, 1, 192, {{32, 192, 2, false, true}, {3, 192, 0, true}}}));
}

TEST(TokenGradientsEmulated, NonFiniteValuesReachTheirPairAndTheTokensOfTheirBlock) {
  for (const float bad : {float(NAN), float(INFINITY), -float(INFINITY)}) {
    GradientsProblem x({1, 30, 8, 4, 16, {{2, 16, 2, true, true}, {1, 16, 1, true}}});
    x.terms[0][1].set(0, 5, 1, 3, bad);
    x.means[0].set(0, 3, 0, 8, bad);
    x.means[1].set(0, x.c.blocks() - 1, 0, 2, bad);
    expect_right(x);
  }
}

TEST(TokenGradientsEmulated, DoesNothingWithoutWork) {
  GradientsProblem({0, 5, 4, 2, 16, {{2, 16, 1, true}}}).run();
  GradientsProblem({2, 0, 4, 2, 16, {{2, 16, 1, true}}}).run();
  GradientsProblem({2, 5, 4, 2, 16, {}}).run();
}

TEST(TokenGradientsEmulated, RefusesSizesWithoutKernel) {
  const GradientsProblem x({1, 9, 4, 2, 16, {{1, 16, 1, true, true}}});
  const auto status = [&](auto change) {
    auto to = x.before();
    TokenGradients p = x.launched(to);
    change(p);
    return token_gradients(p, nullptr);
  };
  const cudaError_t refused = cudaErrorInvalidValue;
  EXPECT_EQ(status([](TokenGradients&) {}), cudaSuccess);
  EXPECT_EQ(status([](TokenGradients& p) { p.cos_sin = nullptr; }), refused);
  EXPECT_EQ(status([](TokenGradients& p) { p.qk_head_dim = 32; }), refused);
  EXPECT_EQ(status([](TokenGradients& p) { p.of[0].head_dim = 12; }), refused);
  EXPECT_EQ(status([](TokenGradients& p) { p.of[0].out_stride = 20; }), refused);
  EXPECT_EQ(status([](TokenGradients& p) { p.of[0].tokens = 10; }), refused);
  EXPECT_EQ(status([](TokenGradients& p) { p.block_size = 0; }), refused);
  EXPECT_EQ(status([](TokenGradients& p) { p.block_stride = 0; }), refused);
  EXPECT_EQ(status([](TokenGradients& p) { p.count = TokenGradients::kMost + 1; }), refused);
}

}  // namespace
}  // namespace nsa::kernels::emulator
