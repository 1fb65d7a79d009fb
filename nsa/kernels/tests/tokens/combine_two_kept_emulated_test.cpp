// The gated sum that keeps two branches for three, in the emulator: same bits of the output, and
// row statistics against the formulas of the paper.
#include "nsa/kernels/tests/tokens/combine_problem.h"

namespace nsa::kernels::emulator {
namespace {

/// The forward pass in the place of a branch, then statistics of what that leaves.
struct TwoKept {
  CombineProblem left;
  Forward forward;

  explicit TwoKept(const CombineProblem& x) : left(x), forward{{}, Floats(x.logits.size(), NAN)} {
    Combine p = left.launched();
    p.keeps_two = true, p.lse_cmp = left.lse[0].data();
    p.out = left.branch[1].bits.data(), p.gates = forward.gates.data();
    EXPECT_EQ(combine_forward(p, nullptr), cudaSuccess);
    forward.out = left.branch[1].bits;
  }
};

bool has_compressed_key(const CombineProblem& x, int row) { return x.lse[0][row] != -INFINITY; }

int dropped_in(const CombineProblem& x, int row) {
  if (!has_compressed_key(x, row)) return 0;
  const float* const of = &x.logits[size_t(row / x.c.heads_per_gate()) * 3];
  int found = 1;
  for (const int i : {0, 2})
    if (of[i] > of[found]) found = i;
  return found;
}

/// Same bits of the output; of the branches the dropped one is not kept.
void expect_two_kept(const CombineProblem& x, const TwoKept& have) {
  EXPECT_TRUE(have.forward == forward(x));
  for (int row = 0; row < x.c.rows(); ++row) {
    const int dropped = dropped_in(x, row);
    for (const int place : {0, 2})
      for (int column = 0; column < x.c.dim; ++column) {
        const int branch = place == dropped ? 1 : place;
        EXPECT_EQ(have.left.branch[place].at(0, row, 0, column),
                  x.branch[branch].at(0, row, 0, column))
            << "row " << row << " place " << place;
      }
  }
}

/// What the rounding of the output changes the sum d_out * out of a row by, at most.
double rounding_of(const CombineProblem& x, const TwoKept& two, int row) {
  double rounding = 0;
  for (int column = 0; column < x.c.dim; ++column)
    rounding += std::fabs(double(two.left.branch[1].at(0, row, 0, column)) *
                          x.d_out.at(0, row, 0, column)) *
                (x.c.half ? 0x1p-11 : 0x1p-8);
  return rounding;
}

/// Sums of the branches that are kept, and of the dropped one to what the rounding of the output
/// allows.
void expect_sums(const CombineProblem& x, const TwoKept& two, const Statistics& have) {
  for (int row = 0; row < x.c.rows(); ++row) {
    const int triple = row / x.c.heads_per_gate(), dropped = dropped_in(x, row);
    const Triple gate = x.gates_of(triple);
    double others = 0;  // errors of the sums that are subtracted
    for (int i = 0; i < 3; ++i)
      if (i != dropped) others += gate[i].value * x.delta_of(row, i).error;
    for (int i = 0; i < 3; ++i) {
      const int at = place_of(x.c, row, Statistics::kOf[i].by_kv_head) * Statistics::kOf[i].stride;
      const Near want = x.delta_of(row, i);
      const double rounding =
          has_compressed_key(x, row) ? (rounding_of(x, two, row) + others) / gate[i].value : 0;
      EXPECT_LE(std::fabs(have.delta[i][at] - want.value),
                want.error + (i == dropped ? 1.001 * rounding + 4 * want.error : 0))
          << "row " << row << " branch " << i;
    }
  }
}

/// Gradients of the logits: an error of the dropped sum comes in times its gate, and once more
/// through the mean of a softmax.
void expect_logits(const CombineProblem& x, const TwoKept& two, const Statistics& have) {
  for (int triple = 0; triple < x.c.triples(); ++triple) {
    double rounding = 0;
    for (int head = 0; head < x.c.heads_per_gate(); ++head) {
      const int row = triple * x.c.heads_per_gate() + head;
      if (has_compressed_key(x, row)) rounding += rounding_of(x, two, row);
    }
    const Triple want = x.d_logits_of(triple);
    for (int i = 0; i < 3; ++i)
      EXPECT_LE(std::fabs(have.d_logits[size_t(triple) * 3 + i] - want[i].value),
                2.002 * rounding + 8 * want[i].error)
          << "triple " << triple << " gate " << i;
  }
}

/// Rows without a compressed key: that branch is 0 there.
void leave_without_key(CombineProblem& x, int row) {
  x.lse[0][row] = -INFINITY;
  for (int column = 0; column < x.c.dim; ++column)
    x.branch[0].bits[size_t(row) * x.c.dim + column] = 0;
}

/// The same logarithms; sums and gradients of logits by the formulas.
void expect_restored(const CombineProblem& x, const TwoKept& two) {
  const Statistics all(x), have(two.left, true, /*keeps_two=*/true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(have.shifted[i], all.shifted[i]);
  expect_sums(x, two, have);
  if (x.c.float_logits) expect_logits(x, two, have);
}

TEST(TwoKeptEmulated, TheBranchOfTheLargestGateIsMadeAgainOfTheOutput) {
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

// Their sums and gradients of logits are as exact as if all three were kept.
TEST(TwoKeptEmulated, RowsWithoutACompressedKeyDropThatBranch) {
  for (const Activation activation : {Activation::kSigmoid, Activation::kSoftmax})
    for (const bool shared : {false, true}) {
      CombineProblem x({1, 6, 2, 4, 64, activation, false, shared});
      for (int row = 0; row < x.c.rows() / 2; ++row) leave_without_key(x, row);
      const TwoKept two(x);
      expect_two_kept(x, two);
      expect_restored(x, two);
      const Statistics all(x), have(two.left, true, /*keeps_two=*/true);
      for (int i = 0; i < 3; ++i)
        for (int row = 0; row < x.c.rows() / 2; ++row) {
          const int at = place_of(x.c, row, Statistics::kOf[i].by_kv_head);
          EXPECT_EQ(have.delta[i][at * Statistics::kOf[i].stride],
                    all.delta[i][at * Statistics::kOf[i].stride]);
        }
      for (int triple = 0; triple < x.c.triples() / 2; ++triple)
        for (int i = 0; i < 3; ++i)
          EXPECT_EQ(have.d_logits[triple * 3 + i], all.d_logits[triple * 3 + i]);
    }
}

TEST(TwoKeptEmulated, AGradientThatIsNotFiniteReachesTheGateOfARowWithoutKey) {
  CombineProblem x({1, 2, 1, 2, 64, Activation::kSigmoid});
  leave_without_key(x, 0);
  x.d_out.bits[3] = bits_of(NAN, false);
  const Statistics have(TwoKept(x).left, true, /*keeps_two=*/true);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(have.d_logits[i])) << i;
}

TEST(TwoKeptEmulated, WithoutLogarithmsOfTheCompressedBranchItIsRefused) {
  const CombineProblem x({1, 2, 1, 2, 64, Activation::kSigmoid});
  Combine p = x.launched();
  p.keeps_two = true, p.out = const_cast<void*>(p.branch[1]);
  EXPECT_EQ(combine_forward(p, nullptr), cudaErrorInvalidValue);
}

TEST(TwoKeptEmulated, GatesNextToZeroAreRestoredToo) {
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

}  // namespace
}  // namespace nsa::kernels::emulator
