// Residual addition, RMSNorm and sums of columns in the emulator, against their formulas.
#include "nsa/kernels/tokens/residual_norm.cu"

#include "nsa/kernels/tests/tokens/near.h"

namespace nsa::kernels::emulator {
namespace {

struct NormCase {
  int rows, dim;
  bool half = false, with_other = true;  // what is added; backward: d_sum
  bool in_place = false;                 // backward: out in the place of d_out
};

struct Forward {
  std::vector<uint16_t> sum, out;
  Floats scale;
  bool operator==(const Forward&) const = default;
};
struct Backward {
  std::vector<uint16_t> d_x, out;
  Floats d_weight;  // parts
  bool operator==(const Backward&) const = default;
};

struct NormProblem {
  NormCase c;
  Numbers x, other, d_out;
  std::vector<float> weight;
  float eps = 1e-5f;

  explicit NormProblem(const NormCase& which)
      : c(which),
        x(1, c.rows, 1, c.dim, c.half),
        other(1, c.rows, 1, c.dim, c.half),
        d_out(1, c.rows, 1, c.dim, c.half) {
    x.draw(1, 1.f), other.draw(2, 1.f), d_out.draw(3, 1.f);
    std::mt19937_64 random(4);
    for (int i = 0; i < c.dim; ++i) weight.push_back(float(random() % 4001) / 1000.f - 2.f);
  }
  ResidualNorm launched(const std::vector<uint16_t>& rows) const {
    ResidualNorm p;
    p.x = rows.data(), p.weight = weight.data(), p.rows = c.rows, p.dim = c.dim, p.eps = eps;
    p.element = c.half ? Element::kHalf : Element::kBFloat16;
    return p;
  }
  Forward forward() const {
    Forward to{c.with_other ? unwritten(x.bits.size()) : std::vector<uint16_t>(),
               unwritten(x.bits.size()), Floats(c.rows, NAN)};
    ResidualNorm p = launched(x.bits);
    p.added = c.with_other ? other.bits.data() : nullptr;
    p.sum = c.with_other ? to.sum.data() : nullptr;
    p.out = to.out.data(), p.scale = to.scale.data();
    EXPECT_EQ(residual_norm_forward(p, nullptr), cudaSuccess);
    return to;
  }
  /// Of the rows that the forward pass left.
  Backward backward(const Forward& f) const {
    Backward to{unwritten(x.bits.size()), c.in_place ? d_out.bits : unwritten(x.bits.size()),
                Floats(size_t(residual_norm_parts(c.rows)) * c.dim, NAN)};
    Floats scale = f.scale;
    ResidualNorm p = launched(c.with_other ? f.sum : x.bits);
    p.scale = scale.data(), p.d_out = c.in_place ? to.out.data() : d_out.bits.data();
    p.d_sum = c.with_other ? other.bits.data() : nullptr;
    p.d_x = to.d_x.data(), p.out = to.out.data(), p.d_weight = to.d_weight.data();
    EXPECT_EQ(residual_norm_backward(p, nullptr), cudaSuccess);
    EXPECT_TRUE(scale == f.scale);
    return to;
  }

  /// The sum of a row's column, as it is rounded.
  uint16_t sum_bits(int row, int i) const {
    const size_t at = size_t(row) * c.dim + i;
    return c.with_other ? twice_rounded(x.at(0, row, 0, i) + other.at(0, row, 0, i), c.half)
                        : x.bits[at];
  }
  double sum_at(int row, int i) const { return value_of(sum_bits(row, i), c.half); }
  double weight_at(int i) const { return value_of(bits_of(weight[i], c.half), c.half); }
  int depth() const { return c.dim / 32 + 16; }  // a lane's terms, then five steps over lanes

  Near scale_of(int row) const {
    Sum squares;
    for (int i = 0; i < c.dim; ++i) squares += Near(sum_at(row, i)) * sum_at(row, i);
    return Near(1) / root(squares.after(depth()) / Near(c.dim) + Near(double{eps}));
  }

  void expect_forward(const Forward& have) const {
    std::vector<Near> out, scale;
    for (int row = 0; row < c.rows; ++row) {
      scale.push_back(scale_of(row));
      for (int i = 0; i < c.dim; ++i) {
        if (c.with_other) {
          const uint16_t bits = have.sum[size_t(row) * c.dim + i], want = sum_bits(row, i);
          ASSERT_TRUE(bits == want || std::isnan(value_of(want, c.half))) << row << ", " << i;
        }
        out.push_back(sum_at(row, i) * (scale.back() * weight_at(i)));
      }
    }
    expect_floats(have.scale, scale, "scale");
    expect_numbers(have.out, out, c.half, "out");
  }
  void expect_backward(const Forward& f, const Backward& have) const {
    std::vector<Near> d_x;
    std::vector<Sum> d_weight(c.dim);
    for (int row = 0; row < c.rows; ++row) {
      const Near scale(double{f.scale[row]});
      Sum along;
      for (int i = 0; i < c.dim; ++i) {
        const Near d = d_out.at(0, row, 0, i), normed = scale * sum_at(row, i);
        along += d * weight_at(i) * normed;
        d_weight[i] += d * normed;
      }
      const Near mean = along.after(depth()) / Near(c.dim);
      for (int i = 0; i < c.dim; ++i) {
        const Near d = Near(d_out.at(0, row, 0, i)) * weight_at(i);
        d_x.push_back(Near(c.with_other ? other.at(0, row, 0, i) : 0.) +
                      scale * (d - scale * sum_at(row, i) * mean));
      }
    }
    expect_numbers(have.d_x, d_x, c.half, "d_x");
    std::vector<Near> want;
    for (const Sum& one : d_weight) want.push_back(one.after(c.rows / 8 + 16));
    std::vector<float> sums(c.dim);
    for (size_t i = 0; i < have.d_weight.size(); ++i) sums[i % c.dim] += have.d_weight[i];
    expect_floats(sums, want, "d_weight");
  }
};

void expect_right(const NormProblem& x) {
  const Forward f = in_every_order([&] { return x.forward(); });
  x.expect_forward(f);
  const Backward b = in_every_order([&] { return x.backward(f); });
  x.expect_backward(f, b);
  EXPECT_TRUE(b.out == f.out) << "not the bits of the forward pass";
}

TEST(ResidualNormEmulated, SumsNormsAndGradients) {
  for (const bool half : {false, true})
    for (const bool with_other : {false, true})
      for (const int dim : {8, 64, 264, 520, 1024})
        expect_right(NormProblem({dim == 64 ? 19 : 3, dim, half, with_other, dim > 64}));
}

TEST(ResidualNormEmulated, WideRowsAreACtas) {
  for (const bool half : {false, true})
    for (const int dim : {1032, 2048, 2568, 8192})
      expect_right(NormProblem({dim == 2048 ? 11 : 3, dim, half, dim != 2048, dim > 2048}));
}

TEST(ResidualNormEmulated, ACtaTakesSeveralWideRows) {
  const NormProblem x({kMostParts * kWarps + 3, 1032});
  EXPECT_EQ(residual_norm_parts(x.c.rows), kMostParts);
  const Forward f = x.forward();
  x.expect_forward(f);
  x.expect_backward(f, x.backward(f));
}

TEST(ResidualNormEmulated, NonFiniteValuesStayInTheirWideRow) {
  NormProblem x({5, 1104});
  const NormProblem clean = x;
  x.x.set(0, 3, 0, 17, NAN);
  expect_right(x);
  const Forward have = x.forward(), good = clean.forward();
  for (int row = 0; row < x.c.rows; ++row)
    EXPECT_EQ(std::equal(have.out.begin() + row * 1104, have.out.begin() + row * 1104 + 1104,
                         good.out.begin() + row * 1104),
              row != 3);
}

TEST(ResidualNormEmulated, RowsAroundABlockOfThreads) {
  for (const int rows : {1, 7, 8, 9, 16}) expect_right(NormProblem({rows, 24}));
}

TEST(ResidualNormEmulated, WarpsTakeSeveralRows) {
  const NormProblem x({(kMostParts + 2) * kWarps + 3, 8});
  EXPECT_EQ(residual_norm_parts(x.c.rows), kMostParts);
  const Forward f = x.forward();
  x.expect_forward(f);
  x.expect_backward(f, x.backward(f));
  const NormProblem longer({132 * kForwardCtas * 4 * kWarps + 5, 8});
  longer.expect_forward(longer.forward());
}

TEST(ResidualNormEmulated, NonFiniteValuesStayInTheirRow) {
  for (const float bad : {float(NAN), float(INFINITY)})
    for (const bool half : {false, true}) {
      NormProblem x({11, 72, half});
      const NormProblem clean = x;
      x.x.set(0, 3, 0, 17, bad);
      x.d_out.set(0, 5, 0, 40, NAN);
      expect_right(x);
      const Forward have = x.forward(), good = clean.forward();
      for (int row = 0; row < x.c.rows; ++row)
        EXPECT_EQ(std::equal(have.out.begin() + row * 72, have.out.begin() + row * 72 + 72,
                             good.out.begin() + row * 72),
                  row != 3);
    }
}

TEST(ResidualNormEmulated, WithoutARequestForItTheNormIsNotStored) {
  const NormProblem x({5, 16});
  const Forward f = x.forward();
  Backward to{unwritten(x.x.bits.size()), {}, Floats(16, NAN)};
  Floats scale = f.scale;
  ResidualNorm p = x.launched(f.sum);
  p.scale = scale.data(), p.d_out = x.d_out.bits.data(), p.d_sum = x.other.bits.data();
  p.d_x = to.d_x.data(), p.d_weight = to.d_weight.data();
  EXPECT_EQ(residual_norm_backward(p, nullptr), cudaSuccess);
  x.expect_backward(f, to);
}

TEST(ResidualNormEmulated, NoRowsAndSizesWithoutKernel) {
  const NormProblem none({0, 16});
  EXPECT_TRUE(none.backward(none.forward()).d_x.empty());
  EXPECT_EQ(residual_norm_parts(0), 0);
  const NormProblem x({1, 16});
  ResidualNorm p = x.launched(x.x.bits);
  EXPECT_EQ(residual_norm_backward(p, nullptr), cudaErrorInvalidValue) << "without d_out";
  p.d_out = x.d_out.bits.data();
  EXPECT_EQ(residual_norm_forward(p, nullptr), cudaErrorInvalidValue) << "with d_out";
  for (const int dim : {0, 12, kMostNormed + 8}) {
    p.dim = dim;
    EXPECT_EQ(residual_norm_backward(p, nullptr), cudaErrorInvalidValue) << dim;
  }
}

TEST(ColumnSumsEmulated, RowsAreAddedInOneOrder) {
  std::mt19937_64 random(5);
  for (const int rows : {0, 1, 15, 16, 17, 300})
    for (const int columns : {0, 1, 16, 40}) {
      std::vector<float> parts;
      for (int i = 0; i < rows * columns + 1; ++i)
        parts.push_back(float(random() % 20001) / 1000.f - 10.f);
      const Floats have = in_every_order([&] {
        Floats out(columns, NAN);
        const float* const from = rows > 0 ? parts.data() : nullptr;
        EXPECT_EQ(column_sums({from, out.data(), rows, columns}, nullptr), cudaSuccess);
        return out;
      });
      std::vector<Near> want;
      for (int column = 0; column < columns; ++column) {
        Sum sum;
        for (int row = 0; row < rows; ++row) sum += Near(double{parts[row * columns + column]});
        want.push_back(sum.after(rows / 16 + 17));
      }
      expect_floats(have, want, "sums");
    }
}

TEST(ColumnSumsEmulated, NonFiniteValuesStayInTheirColumn) {
  std::vector<float> parts(40 * 20, 1.f), out(20);
  parts[33 * 20 + 7] = NAN, parts[12 * 20 + 17] = INFINITY;
  ASSERT_EQ(column_sums({parts.data(), out.data(), 40, 20}, nullptr), cudaSuccess);
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(i == 7 ? std::isnan(out[i]) : out[i] == (i == 17 ? INFINITY : 40.f)) << i;
  EXPECT_EQ(column_sums({nullptr, out.data(), 1, 1}, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace nsa::kernels::emulator
