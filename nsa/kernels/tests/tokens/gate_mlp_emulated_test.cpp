// The gate MLP in the emulator, forward and backward: mean over the heads of a group, Linear, SiLU,
// Linear, and derivatives.
#include "nsa/kernels/tokens/gate_mlp.cu"

#include "nsa/kernels/tests/tokens/near.h"

namespace nsa::kernels::emulator {
namespace {

struct MlpCase {
  int tokens, kv_heads, group, dim;
  bool half = false;
  int gap = 0;  // between tokens of q and of d_q
  int units() const { return dim / 2; }
  int rows() const { return tokens * kv_heads; }
};

struct Backward {
  std::vector<uint16_t> d_q;  // with its gaps
  Floats parts;
  bool operator==(const Backward&) const = default;
};

/// What a row (token and KV head) goes through.
struct RowOf {
  std::vector<Near> mean, x, silu, d_x;  // x: the hidden layer before its activation
};

struct MlpProblem {
  MlpCase c;
  Numbers q, d_q;
  std::vector<float> w1, b1, w2, b2, d_logits;

  explicit MlpProblem(const MlpCase& which)
      : c(which),
        q(1, c.tokens, 1, c.kv_heads * c.group * c.dim, c.half, c.gap),
        d_q(1, c.tokens, 1, c.kv_heads * c.group * c.dim, c.half, 2 * c.gap) {
    q.draw(1, 1.f), d_q.draw(2, 1.f);
    std::mt19937_64 random(3);
    const auto draw = [&](std::vector<float>& to, int size, float scale) {
      for (int i = 0; i < size; ++i) to.push_back(scale * (float(random() % 2001) / 1000.f - 1.f));
    };
    draw(w1, c.units() * c.dim, 1.f), draw(b1, c.units(), 1.f);
    draw(w2, 3 * c.units(), 1.f), draw(b2, 3, 1.f), draw(d_logits, c.rows() * 3, 1.f);
  }
  GateMlp launched() const {
    GateMlp p;
    p.q = q.bits.data(), p.q_stride = q.token_stride;
    p.w1 = w1.data(), p.b1 = b1.data(), p.w2 = w2.data(), p.b2 = b2.data();
    p.rows = c.tokens, p.num_heads = c.kv_heads * c.group, p.num_kv_heads = c.kv_heads;
    p.head_dim = c.dim, p.element = c.half ? Element::kHalf : Element::kBFloat16;
    return p;
  }
  Floats forward() const {
    Floats logits(c.rows() * 3, NAN);
    GateMlp p = launched();
    p.logits = logits.data();
    EXPECT_EQ(gate_mlp_forward(p, nullptr), cudaSuccess);
    return logits;
  }
  Backward backward() const {
    Backward to{
        d_q.bits,
        Floats(size_t(gate_mlp_parts(c.tokens, c.kv_heads)) * gate_mlp_weights(c.dim), NAN)};
    GateMlp p = launched();
    p.d_logits = d_logits.data(), p.d_q = to.d_q.data(), p.d_q_stride = d_q.token_stride;
    p.d_weights = to.parts.data();
    EXPECT_EQ(gate_mlp_backward(p, nullptr), cudaSuccess);
    return to;
  }

  int column_of(int row, int head, int i) const {
    return ((row % c.kv_heads) * c.group + head) * c.dim + i;
  }
  RowOf row_of(int row) const {
    RowOf of;
    for (int i = 0; i < c.dim; ++i) {
      Sum sum;
      for (int head = 0; head < c.group; ++head)
        sum += q.at(0, row / c.kv_heads, 0, column_of(row, head, i));
      of.mean.push_back(sum.after(c.group) / Near(c.group));
    }
    for (int u = 0; u < c.units(); ++u) {
      Sum sum;
      sum += Near(b1[u]);
      for (int i = 0; i < c.dim; ++i) sum += Near(w1[u * c.dim + i]) * of.mean[i];
      const Near x = sum.after(c.dim), s = sigmoid(x), silu = x * s;
      Sum d;
      for (int g = 0; g < 3; ++g) d += Near(d_logits[row * 3 + g]) * w2[g * c.units() + u];
      of.x.push_back(x), of.silu.push_back(silu);
      of.d_x.push_back(d.after(3) * (s + silu * (Near(1) - s)));
    }
    return of;
  }
  std::vector<Near> wanted_logits() const {
    std::vector<Near> all;
    for (int row = 0; row < c.rows(); ++row) {
      const RowOf of = row_of(row);
      for (int g = 0; g < 3; ++g) {
        Sum sum;
        sum += Near(b2[g]);
        for (int u = 0; u < c.units(); ++u) sum += of.silu[u] * w2[g * c.units() + u];
        all.push_back(sum.after(c.units()));
      }
    }
    return all;
  }

  void expect_queries(const Backward& have) const {
    Numbers rest = d_q;  // gaps, when results are taken out
    rest.bits = have.d_q;
    std::vector<uint16_t> bits;
    std::vector<Near> want;
    for (int row = 0; row < c.rows(); ++row) {
      const RowOf of = row_of(row);
      for (int i = 0; i < c.dim; ++i) {
        Sum sum;
        for (int u = 0; u < c.units(); ++u) sum += of.d_x[u] * w1[u * c.dim + i];
        const Near share = sum.after(c.units()) / Near(c.group);
        for (int head = 0; head < c.group; ++head) {
          const int column = column_of(row, head, i), token = row / c.kv_heads;
          const int64_t place = d_q.place(0, token, 0, column);
          bits.push_back(have.d_q[place]);
          rest.bits[place] = d_q.bits[place];
          want.push_back(share + d_q.at(0, token, 0, column));
        }
      }
    }
    expect_numbers(bits, want, c.half, "d_q");
    EXPECT_TRUE(rest.bits == d_q.bits) << "written beside";
  }
  void expect_weights(const Backward& have) const {
    const int units = c.units(), size = gate_mlp_weights(c.dim);
    std::vector<Sum> sums(size);
    Sum *const of_b1 = &sums[units * c.dim], *const of_w2 = of_b1 + units,
               *const of_b2 = of_w2 + 3 * units;
    for (int row = 0; row < c.rows(); ++row) {
      const RowOf of = row_of(row);
      for (int u = 0; u < units; ++u) {
        for (int i = 0; i < c.dim; ++i) sums[u * c.dim + i] += of.d_x[u] * of.mean[i];
        of_b1[u] += of.d_x[u];
        for (int g = 0; g < 3; ++g)
          of_w2[g * units + u] += Near(d_logits[row * 3 + g]) * of.silu[u];
      }
      for (int g = 0; g < 3; ++g) of_b2[g] += Near(d_logits[row * 3 + g]);
    }
    std::vector<Near> want;
    for (const Sum& one : sums) want.push_back(one.after(std::min(c.rows(), 64) + c.rows() / 64));
    std::vector<float> added(size);
    for (size_t i = 0; i < have.parts.size(); ++i) added[i % size] += have.parts[i];
    expect_floats(added, want, "d_weights");
  }
};

void expect_right(const MlpProblem& x) {
  expect_floats(in_every_order([&] { return x.forward(); }), x.wanted_logits(), "logits");
  const Backward have = in_every_order([&] { return x.backward(); });
  x.expect_queries(have);
  x.expect_weights(have);
}

TEST(GateMlpEmulated, LogitsAndGradientsOfAllWidths) {
  for (const bool half : {false, true})
    for (const int dim : {8, 24, 64, 72, 128, 136, 192})
      expect_right(MlpProblem({11, 2, 3, dim, half, 8}));
}

TEST(GateMlpEmulated, AllGroups) {
  for (const int group : {1, 4, 6, 7, 16}) expect_right(MlpProblem({5, 2, group, 16}));
}

TEST(GateMlpEmulated, RowsAroundATile) {
  for (const int tokens : {1, 63, 64, 65, 130}) expect_right(MlpProblem({tokens, 1, 2, 16}));
}

TEST(GateMlpEmulated, WideHeadsOfSeveralTiles) { expect_right(MlpProblem({130, 1, 2, 192})); }

TEST(GateMlpEmulated, BlocksOfThreadsTakeSeveralTiles) {
  const MlpProblem x({kMostParts * kRows + 70, 1, 1, 8});
  EXPECT_EQ(gate_mlp_parts(x.c.tokens, 1), kMostParts);
  expect_floats(x.forward(), x.wanted_logits(), "logits");
  const Backward have = x.backward();
  x.expect_queries(have);
  x.expect_weights(have);
}

TEST(GateMlpEmulated, NonFiniteValuesStayInTheirRow) {
  MlpProblem x({9, 2, 2, 16});
  x.q.set(0, 4, 0, 5, NAN);
  x.d_q.set(0, 6, 0, 1, INFINITY);
  expect_right(x);
}

TEST(GateMlpEmulated, NoRowsAndSizesWithoutKernel) {
  EXPECT_TRUE(MlpProblem({0, 2, 2, 16}).forward().empty());
  EXPECT_TRUE(MlpProblem({0, 2, 2, 16}).backward().d_q.empty());
  EXPECT_EQ(gate_mlp_parts(0, 4), 0);
  const MlpProblem x({1, 2, 2, 16});
  EXPECT_EQ(gate_mlp_backward(x.launched(), nullptr), cudaErrorInvalidValue) << "without d_logits";
  const auto refused = [&](auto change) {
    GateMlp p = x.launched();
    change(p);
    return gate_mlp_forward(p, nullptr) == cudaErrorInvalidValue;
  };
  EXPECT_TRUE(refused([&](GateMlp& p) { p.d_logits = x.d_logits.data(); }));
  for (const int dim : {0, 12, kMostGateDim + 8})
    EXPECT_TRUE(refused([&](GateMlp& p) { p.head_dim = dim; })) << dim;
  EXPECT_TRUE(refused([](GateMlp& p) { p.num_kv_heads = 0; }));
  EXPECT_TRUE(refused([](GateMlp& p) { p.num_heads = 3; }));
  EXPECT_TRUE(refused([](GateMlp& p) { p.q_stride = 20; }));
}

}  // namespace
}  // namespace nsa::kernels::emulator
