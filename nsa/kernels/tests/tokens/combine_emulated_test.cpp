// The gated sum of the branches in the emulator, forward and backward, against Eq. 5 of the paper
// and its derivatives, and the row statistics against what the branches' backward passes want.
#include "nsa/kernels/tokens/combine.cu"

#include "nsa/kernels/tests/tokens/near.h"

namespace nsa::kernels::emulator {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kSigmoid,
                                       Activation::kSoftmax};

struct CombineCase {
  int batch, tokens, kv_heads, group, dim;
  Activation activation = Activation::kSigmoid;
  bool half = false, shared = false, float_logits = true;  // shared: a triple for a group
  int heads() const { return kv_heads * group; }
  int rows() const { return batch * tokens * heads(); }
  int heads_per_gate() const { return shared ? group : 1; }
  int triples() const { return rows() / heads_per_gate(); }
};
using Triple = std::array<Near, 3>;

struct CombineProblem {
  CombineCase c;
  std::vector<Numbers> branch;
  Numbers d_out;
  std::vector<float> logits;  // numbers of the element type
  std::vector<uint16_t> logit_bits;
  std::vector<float> lse[3];

  explicit CombineProblem(const CombineCase& which)
      : c(which), branch(3, rows_of()), d_out(rows_of().draw(4, 1.f)) {
    for (int i = 0; i < 3; ++i) branch[i].draw(i + 1, 1.f);
    std::mt19937_64 random(5);
    for (int i = 0; i < c.triples() * 3; ++i)
      set_logit(i, c.activation == Activation::kNone ? float(random() % 1000) / 1000.f
                                                     : float(random() % 8000) / 1000.f - 4.f);
    for (auto& of : lse)
      for (int i = 0; i < c.rows(); ++i) of.push_back(float(random() % 9000) / 1000.f - 3.f);
  }
  Numbers rows_of() const { return Numbers(1, c.rows(), 1, c.dim, c.half); }
  void set_logit(size_t i, float x) {
    logits.resize(std::max(logits.size(), i + 1)), logit_bits.resize(logits.size());
    logit_bits[i] = bits_of(x, c.half);
    logits[i] = float(value_of(logit_bits[i], c.half));
  }
  Combine launched() const {
    Combine p;
    for (int i = 0; i < 3; ++i) p.branch[i] = branch[i].bits.data();
    p.logits = c.float_logits ? static_cast<const void*>(logits.data()) : logit_bits.data();
    p.float_logits = c.float_logits, p.activation = c.activation, p.rows = c.rows();
    p.heads_per_gate = c.heads_per_gate(), p.head_dim = c.dim, p.d_out = d_out.bits.data();
    p.num_tokens = c.tokens, p.num_heads = c.heads(), p.num_kv_heads = c.kv_heads;
    p.element = c.half ? Element::kHalf : Element::kBFloat16;
    return p;
  }

  Triple gates_of(int triple) const {
    Triple x{Near(logits[triple * 3]), Near(logits[triple * 3 + 1]), Near(logits[triple * 3 + 2])};
    if (c.activation == Activation::kSigmoid)
      for (Near& one : x) one = sigmoid(one);
    if (c.activation != Activation::kSoftmax) return x;
    double largest = -INFINITY;  // NaN is in the sum
    for (const Near& one : x) largest = std::fmax(largest, one.value);
    Sum sum;
    for (Near& one : x) sum += one = power_of_e(one - Near(largest));
    for (Near& one : x) one = one / sum.after(2);
    return x;
  }
  /// d_out * o of a branch over a row: a lane's terms, then those of the lanes.
  Near delta_of(int row, int i) const {
    Sum sum;
    for (int column = 0; column < c.dim; ++column)
      sum += Near(d_out.at(0, row, 0, column)) * branch[i].at(0, row, 0, column);
    return sum.after(24);
  }
  Triple d_logits_of(int triple) const {
    const Triple gate = gates_of(triple);
    Triple d;
    for (int i = 0; i < 3; ++i) {
      Sum sum;
      for (int head = 0; head < c.heads_per_gate(); ++head)
        sum += delta_of(triple * c.heads_per_gate() + head, i);
      d[i] = sum.after(c.heads_per_gate());
    }
    if (c.activation == Activation::kSigmoid)
      for (int i = 0; i < 3; ++i) d[i] = d[i] * (gate[i] * (Near(1) - gate[i]));
    if (c.activation != Activation::kSoftmax) return d;
    const Near mean = gate[0] * d[0] + gate[1] * d[1] + gate[2] * d[2];
    for (int i = 0; i < 3; ++i) d[i] = gate[i] * (d[i] - mean);
    return d;
  }
  /// Of all triples, one after the other.
  template <typename Of>
  std::vector<Near> all_triples(const Of& of) const {
    std::vector<Near> all;
    for (int triple = 0; triple < c.triples(); ++triple)
      for (const Near& one : of(triple)) all.push_back(one);
    return all;
  }
  std::vector<Near> wanted_rows(bool forward, int of_branch) const {
    std::vector<Near> all;
    for (int row = 0; row < c.rows(); ++row) {
      const Triple gate = gates_of(row / c.heads_per_gate());
      for (int i = 0; i < c.dim; ++i) {
        Near sum;
        for (int b = 0; b < 3; ++b) sum = sum + gate[b] * branch[b].at(0, row, 0, i);
        all.push_back(forward ? sum : gate[of_branch] * d_out.at(0, row, 0, i));
      }
    }
    return all;
  }
};

struct Forward {
  std::vector<uint16_t> out;
  Floats gates;
  bool operator==(const Forward&) const = default;
};
Forward forward(const CombineProblem& x, bool with_gates = true) {
  Forward to{unwritten(x.d_out.bits.size()), Floats(with_gates ? x.logits.size() : 0, NAN)};
  Combine p = x.launched();
  p.out = to.out.data(), p.gates = with_gates ? to.gates.data() : nullptr;
  EXPECT_EQ(combine_forward(p, nullptr), cudaSuccess);
  return to;
}

/// Gradients of the logits in the one of both that has their type.
struct Backward {
  std::vector<std::vector<uint16_t>> branches;
  Floats d_logits;
  std::vector<uint16_t> d_logit_bits;
  bool operator==(const Backward&) const = default;

  explicit Backward(const CombineProblem& x)
      : d_logits(x.logits.size(), NAN), d_logit_bits(unwritten(x.logits.size())) {}
  void* gradients(const CombineProblem& x) {
    return x.c.float_logits ? static_cast<void*>(d_logits.data()) : d_logit_bits.data();
  }
  void expect_logits(const CombineProblem& x) const {
    const auto want = x.all_triples([&](int triple) { return x.d_logits_of(triple); });
    if (x.c.float_logits)
      expect_floats(d_logits, want, "d_logits");
    else
      expect_numbers(d_logit_bits, want, x.c.half, "d_logits");
  }
};
Backward backward(const CombineProblem& x) {
  Backward to(x);
  Combine p = x.launched();
  p.d_logits = to.gradients(x);
  to.branches.assign(3, unwritten(x.d_out.bits.size()));
  for (int i = 0; i < 3; ++i) p.d_branch[i] = to.branches[i].data();
  EXPECT_EQ(combine_backward(p, nullptr), cudaSuccess);
  return to;
}

void expect_right(const CombineProblem& x) {
  const Forward f = in_every_order([&] { return forward(x); });
  expect_numbers(f.out, x.wanted_rows(true, 0), x.c.half, "out");
  expect_floats(f.gates, x.all_triples([&](int i) { return x.gates_of(i); }), "gates");
  EXPECT_TRUE(forward(x, false).out == f.out);
  const Backward b = in_every_order([&] { return backward(x); });
  for (int i = 0; i < 3; ++i)
    expect_numbers(b.branches[i], x.wanted_rows(false, i), x.c.half, "d_branch");
  b.expect_logits(x);
}

TEST(CombineEmulated, SumsAndGradientsOfAllActivations) {
  for (const Activation activation : kActivations)
    for (const bool half : {false, true})
      for (const bool shared : {false, true})
        expect_right(CombineProblem({2, 5, 2, 3, 64, activation, half, shared, half == shared}));
}

TEST(CombineEmulated, AllGroupsAndWidths) {
  for (const int group : {1, 4, 6, 16})
    for (const int dim : {8, 24, 128, 192, 264}) {
      expect_right(CombineProblem({1, 3, 1, group, dim, Activation::kSoftmax, false, true}));
      expect_right(CombineProblem({1, 1, 1, group, dim, Activation::kSigmoid, true, false}));
    }
}

/// Statistics of the branches: one as the interval branches read them, one as the selected branch,
/// one in the order of KV heads with room between rows.
struct Statistics : Backward {
  static constexpr GatedRows kOf[3] = {{nullptr, nullptr, nullptr, 1, true, false},
                                       {nullptr, nullptr, nullptr, 2, false, true},
                                       {nullptr, nullptr, nullptr, 3, true, true}};
  Floats shifted[3], delta[3];
  std::vector<int> flags{1, 2, 3};
  bool operator==(const Statistics&) const = default;

  explicit Statistics(const CombineProblem& x, bool with_flags = true, bool keeps_two = false)
      : Backward(x) {
    Combine p = x.launched();
    p.keeps_two = keeps_two;
    p.d_logits = gradients(x), p.flags = with_flags ? flags.data() : nullptr;
    for (int i = 0; i < 3; ++i) {
      shifted[i].assign(size_t(x.c.rows()) * kOf[i].stride, -7.f), delta[i] = shifted[i];
      p.gated[i] = kOf[i];
      p.gated[i].lse = x.lse[i].data();
      p.gated[i].shifted_lse = shifted[i].data(), p.gated[i].delta = delta[i].data();
    }
    EXPECT_EQ(combine_backward(p, nullptr), cudaSuccess);
  }
};

/// Where a row [b, t, head] lies.
int place_of(const CombineCase& c, int row, bool by_kv_head) {
  const int head = row % c.heads(), t = row / c.heads() % c.tokens, b = row / c.heads() / c.tokens;
  return by_kv_head ? ((b * c.kv_heads + head / c.group) * c.tokens + t) * c.group + head % c.group
                    : row;
}

/// Of a gate that is 0, or next to it, the logarithm is far from that of every probability.
void expect_shifted(float have, float lse, const Near& gate) {
  constexpr double kLog2OfE = 1.44269504088896340736;
  if (gate.value < 0x1p-120) {
    EXPECT_TRUE(std::isfinite(have) && have >= lse * kLog2OfE + 119) << gate.value;
    return;
  }
  const double log_gate = std::log2(gate.value), want = lse * kLog2OfE - log_gate;
  const double error =
      4 * Near::kUnit * (std::fabs(lse * kLog2OfE) + std::fabs(log_gate) + std::fabs(want)) +
      gate.error / gate.value * kLog2OfE;
  EXPECT_LE(std::fabs(have - want), error) << want;
}

void expect_row(const CombineProblem& x, const Statistics& have, int row, int i) {
  const GatedRows& of = Statistics::kOf[i];
  const int at = place_of(x.c, row, of.by_kv_head) * of.stride;
  bool finite = true;  // d_out
  for (int column = 0; column < x.c.dim; ++column)
    finite = finite && std::isfinite(x.d_out.at(0, row, 0, column));
  const float lse = x.lse[i][row], shifted = have.shifted[i][at];
  const Near gate = x.gates_of(row / x.c.heads_per_gate())[i];
  Near delta = x.delta_of(row, i);
  if (of.marks_bad_rows && (!finite || !std::isfinite(lse))) {
    EXPECT_TRUE(std::isnan(shifted)) << row;
  } else if (lse == -INFINITY) {
    EXPECT_EQ(shifted, INFINITY) << row;
    delta = Near(0);
  } else if (std::isnan(gate.value) || std::isnan(lse)) {
    EXPECT_TRUE(std::isnan(shifted)) << row;
  } else {
    expect_shifted(shifted, lse, gate);
  }
  EXPECT_TRUE(is_near(have.delta[i][at], delta, 0))
      << have.delta[i][at] << ", not " << delta.value << " +- " << delta.error;
  for (int gap = 1; gap < of.stride; ++gap)
    EXPECT_TRUE(have.shifted[i][at + gap] == -7.f && have.delta[i][at + gap] == -7.f);
}

void expect_statistics(const CombineProblem& x) {
  const Statistics have = in_every_order([&] { return Statistics(x); });
  have.expect_logits(x);
  EXPECT_EQ(have.flags, std::vector<int>({0, 0, 0}));
  for (int row = 0; row < x.c.rows(); ++row)
    for (int i = 0; i < 3; ++i) expect_row(x, have, row, i);
}

TEST(CombineStatisticsEmulated, LogarithmsLessTheGatesAndSums) {
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax})
    for (const bool half : {false, true})
      for (const bool shared : {false, true})
        expect_statistics(
            CombineProblem({2, 5, 2, 3, 64, activation, half, shared, half != shared}));
}

TEST(CombineStatisticsEmulated, AllGroupsAndWidths) {
  for (const int group : {1, 4, 6, 16})
    for (const int dim : {8, 24, 128, 264})
      for (const bool shared : {false, true})
        expect_statistics(
            CombineProblem({1, 3, 2, group, dim, Activation::kSoftmax, false, shared}));
}

TEST(CombineStatisticsEmulated, RowsWithoutKeysAndNonFiniteValues) {
  for (const bool shared : {false, true}) {
    CombineProblem x({2, 7, 2, 4, 64, Activation::kSigmoid, false, shared});
    for (auto& lse : x.lse) lse[9] = lse[40] = -INFINITY, lse[50] = NAN;
    x.d_out.set(0, 12, 0, 33, NAN);
    x.d_out.set(0, 71, 0, 0, INFINITY);
    x.branch[0].set(0, 20, 0, 7, NAN);
    x.branch[2].set(0, 21, 0, 7, -INFINITY);
    expect_statistics(x);
  }
}

TEST(CombineStatisticsEmulated, GatesNextToZeroAndOne) {
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax}) {
    CombineProblem x({1, 8, 1, 2, 32, activation});
    const float logits[] = {-200, 200, 0, -95, 30, 90, -1e30f, 0, 1e30f};
    for (int i = 0; i < 9; ++i) x.set_logit(i, logits[i]);
    expect_statistics(x);
    expect_right(x);
  }
}

/// The forward pass in the place of a branch, then statistics of what that leaves.
struct TwoKept {
  CombineProblem left;
  Forward forward;

  explicit TwoKept(const CombineProblem& x) : left(x), forward{{}, Floats(x.logits.size(), NAN)} {
    Combine p = left.launched();
    p.keeps_two = true;
    p.out = left.branch[1].bits.data(), p.gates = forward.gates.data();
    EXPECT_EQ(combine_forward(p, nullptr), cudaSuccess);
    forward.out = left.branch[1].bits;
  }
};

int largest_logit(const CombineProblem& x, int triple) {
  const float* const of = &x.logits[size_t(triple) * 3];
  int found = 1;
  for (const int i : {0, 2})
    if (of[i] > of[found]) found = i;
  return found;
}

/// Same bits of the output; the rows that are kept are the branches with the smaller gates.
void expect_two_kept(const CombineProblem& x, const TwoKept& have) {
  EXPECT_TRUE(have.forward == forward(x));
  for (int row = 0; row < x.c.rows(); ++row) {
    const int dropped = largest_logit(x, row / x.c.heads_per_gate());
    for (const int place : {0, 2})
      for (int column = 0; column < x.c.dim; ++column) {
        const int branch = place == dropped ? 1 : place;
        EXPECT_EQ(have.left.branch[place].at(0, row, 0, column),
                  x.branch[branch].at(0, row, 0, column))
            << "row " << row << " place " << place;
      }
  }
}

/// Of the dropped branch to what the rounding of the output allows, of the others the same bits.
void expect_restored(const CombineProblem& x, const TwoKept& two) {
  const Statistics want(x), have(two.left, true, /*keeps_two=*/true);
  for (int row = 0; row < x.c.rows(); ++row) {
    const int triple = row / x.c.heads_per_gate(), dropped = largest_logit(x, triple);
    const Triple gate = x.gates_of(triple);
    double rounding = 0;  // half an ulp of each number of the output
    for (int column = 0; column < x.c.dim; ++column) {
      const double out = two.left.branch[1].at(0, row, 0, column);
      rounding += std::fabs(out * x.d_out.at(0, row, 0, column)) * (x.c.half ? 0x1p-11 : 0x1p-8);
    }
    for (int i = 0; i < 3; ++i) {
      const int at = place_of(x.c, row, Statistics::kOf[i].by_kv_head) * Statistics::kOf[i].stride;
      EXPECT_EQ(have.shifted[i][at], want.shifted[i][at]);
      const double off = std::fabs(have.delta[i][at] - want.delta[i][at]);
      if (i == dropped)
        EXPECT_LE(off, rounding / gate[i].value + 1e-5 * (1 + std::fabs(want.delta[i][at]))) << row;
      else
        EXPECT_EQ(off, 0) << row;
    }
  }
}

TEST(CombineStatisticsEmulated, TheBranchOfTheLargestGateIsMadeAgainOfTheOutput) {
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax})
    for (const bool half : {false, true})
      for (const bool shared : {false, true})
        for (const int dim : {64, 264}) {
          const CombineProblem x({2, 5, 2, 3, dim, activation, half, shared, half != shared});
          const TwoKept two(x);
          expect_two_kept(x, two);
          expect_restored(x, two);
        }
}

TEST(CombineStatisticsEmulated, GatesNextToZeroAreRestoredToo) {
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax}) {
    CombineProblem x({1, 8, 1, 2, 32, activation});
    const float logits[] = {-200, 200, 0, -95, -95, 90, -150, -150, -150};
    for (int i = 0; i < 9; ++i) x.set_logit(i, logits[i]);
    const TwoKept two(x);
    expect_two_kept(x, two);
    const Statistics have(two.left, true, /*keeps_two=*/true);
    for (int i = 0; i < 3; ++i)
      for (const float delta : have.delta[i]) EXPECT_TRUE(std::isfinite(delta));
  }
}

TEST(CombineStatisticsEmulated, FlagsMayBeNull) {
  const CombineProblem x({1, 3, 1, 2, 16});
  EXPECT_EQ(Statistics(x, false).flags, std::vector<int>({1, 2, 3}));
}

TEST(CombineEmulated, ANaNLogitReachesAllGatesOfASoftmax) {
  for (const Activation activation : kActivations)
    for (const bool shared : {false, true})
      for (int i = 0; i < 3; ++i) {
        CombineProblem x({1, 3, 2, 2, 16, activation, false, shared});
        x.set_logit(3 + i, NAN);
        expect_right(x);
      }
}

TEST(CombineEmulated, NonFiniteValuesStayInTheirRow) {
  for (const float bad : {float(NAN), float(INFINITY)}) {
    CombineProblem x({1, 5, 2, 2, 32, Activation::kSigmoid, true, true});
    x.branch[1].set(0, 6, 0, 9, bad);
    x.d_out.set(0, 13, 0, 2, bad);
    expect_right(x);
  }
}

TEST(CombineEmulated, NoRowsAndSizesWithoutKernel) {
  EXPECT_TRUE(forward(CombineProblem({2, 0, 2, 2, 16})).out.empty());
  backward(CombineProblem({0, 3, 2, 2, 16}));
  const CombineProblem x({1, 3, 2, 2, 16});
  const auto refused = [&](auto change) {
    Combine p = x.launched();
    change(p);
    return combine_forward(p, nullptr) == cudaErrorInvalidValue &&
           combine_backward(p, nullptr) == cudaErrorInvalidValue;
  };
  EXPECT_TRUE(refused([](Combine& p) { p.head_dim = 12; }));
  EXPECT_TRUE(refused([](Combine& p) { p.heads_per_gate = 0; }));
  EXPECT_TRUE(refused([](Combine& p) { p.heads_per_gate = 5; }));
  EXPECT_TRUE(refused([](Combine& p) { p.rows = kMostCombined + 2; }));
  Combine p = x.launched();
  p.activation = Activation::kNone;
  EXPECT_EQ(combine_backward(p, nullptr), cudaErrorInvalidValue) << "statistics of given gates";
  p.keeps_two = true;
  EXPECT_EQ(combine_forward(p, nullptr), cudaErrorInvalidValue) << "gates that may be negative";
}

}  // namespace
}  // namespace nsa::kernels::emulator
