// The rotary embedding in the emulator, against its formula.
#include "nsa/kernels/tokens/rotate.cu"

#include "nsa/kernels/tests/tokens/near.h"

namespace nsa::kernels::emulator {
namespace {

struct RotateCase {
  int batch, tokens, heads, dim;
  bool half = false, per_sequence = false, inverse = false;
  int gap = 0;
};

struct RotateProblem {
  RotateCase c;
  Numbers x;
  std::vector<int64_t> positions;
  double base = 1e4;

  explicit RotateProblem(const RotateCase& which)
      : c(which), x(c.batch, c.tokens, c.heads, c.dim, c.half, c.gap) {
    x.draw(1, 1.f);
    std::mt19937_64 random(2);
    const int64_t some[] = {0, 1, 17, 4095, 65'535, 1'000'003};
    for (int i = 0; i < (c.per_sequence ? c.batch : 1) * c.tokens; ++i)
      positions.push_back(i < 6 ? some[(i + c.tokens) % 6] : int64_t(random() % 100'000));
  }
  std::vector<uint16_t> run() const {
    std::vector<uint16_t> out = unwritten(size_t(c.batch) * c.tokens * c.heads * c.dim);
    const Rotate p{x.strided(),
                   out.data(),
                   positions.data(),
                   c.per_sequence,
                   c.inverse,
                   c.batch,
                   c.tokens,
                   c.heads,
                   c.dim,
                   base,
                   c.half ? Element::kHalf : Element::kBFloat16};
    EXPECT_EQ(rotate(p, nullptr), cudaSuccess);
    return out;
  }
  std::vector<Near> wanted() const {
    std::vector<Near> all;
    for (int b = 0; b < c.batch; ++b)
      for (int t = 0; t < c.tokens; ++t)
        for (int h = 0; h < c.heads; ++h)
          for (int i = 0; i < c.dim; i += 2) {
            const auto position =
                static_cast<long double>(positions[(c.per_sequence ? b * c.tokens : 0) + t]);
            const long double angle = position * std::pow(static_cast<long double>(base),
                                                          -static_cast<long double>(i) / c.dim);
            const double slip = double(position) * 0x1p-50;  // of an angle in fp64
            const Near cosine(double(std::cos(angle)), slip),
                sine(double(c.inverse ? -std::sin(angle) : std::sin(angle)), slip);
            const Near even = x.at(b, t, h, i), odd = x.at(b, t, h, i + 1);
            all.push_back(even * cosine - odd * sine);
            all.push_back(even * sine + odd * cosine);
          }
    return all;
  }
};

void expect_right(const RotateProblem& x) {
  expect_numbers(in_every_order([&] { return x.run(); }), x.wanted(), x.c.half, "rotated");
}

TEST(RotateEmulated, PairsAreRotatedByTheirPosition) {
  for (const bool half : {false, true})
    for (const bool inverse : {false, true}) {
      expect_right(RotateProblem({2, 7, 3, 64, half, false, inverse}));
      expect_right(RotateProblem({3, 5, 2, 24, half, true, inverse, 8}));
    }
}

TEST(RotateEmulated, SmallestAndLargestRows) {
  expect_right(RotateProblem({1, 1, 1, 8}));
  expect_right(RotateProblem({1, 2, 1, 2 * tokens::kMostPairs}));
  expect_right(RotateProblem({1, 2, 64, 192}));  // more vectors than threads, and no multiple
}

TEST(RotateEmulated, BackwardUndoesForward) {
  RotateProblem x({1, 6, 2, 64, true});
  const Numbers before = x.x;
  x.x.bits = x.run();
  x.c.inverse = true;
  const std::vector<uint16_t> back = x.run();
  for (size_t i = 0; i < back.size(); ++i)
    EXPECT_NEAR(value_of(back[i], true), value_of(before.bits[i], true), 4e-3);
}

TEST(RotateEmulated, NonFiniteValuesStayInTheirPair) {
  for (const float bad : {float(NAN), float(INFINITY), -float(INFINITY)}) {
    RotateProblem x({1, 5, 2, 16});
    x.x.set(0, 2, 1, 5, bad);
    expect_right(x);
  }
}

TEST(RotateEmulated, DoesNothingWithoutWork) {
  for (const RotateCase& c : {RotateCase{0, 3, 2, 16}, {2, 0, 2, 16}, {2, 3, 0, 16}})
    EXPECT_TRUE(RotateProblem(c).run().empty());
}

TEST(RotateEmulated, RowsWithoutAKernelAreRefused) {
  Rotate p;
  p.batch = p.num_tokens = p.num_heads = 1;
  for (const int dim : {4, 12, 2 * tokens::kMostPairs + 8}) {
    p.head_dim = dim;
    EXPECT_EQ(rotate(p, nullptr), cudaErrorInvalidValue) << dim;
  }
}

}  // namespace
}  // namespace nsa::kernels::emulator
