// silu(gate) * up in the emulator, against the formula and its derivatives.
#include "nsa/kernels/tokens/swiglu.cu"

#include "nsa/kernels/tests/tokens/near.h"

namespace nsa::kernels::emulator {
namespace {

struct SwigluProblem {
  int rows, hidden;
  bool half;
  Numbers pair, d_out;  // of gate and up

  SwigluProblem(int r, int h, bool is_half)
      : rows(r), hidden(h), half(is_half), pair(1, r, 1, 2 * h, half), d_out(1, r, 1, h, half) {
    pair.draw(1, 2.f), d_out.draw(2, 1.f);
  }
  Swiglu launched() const {
    Swiglu p;
    p.gate_up = pair.bits.data(), p.rows = rows, p.hidden = hidden;
    p.element = half ? Element::kHalf : Element::kBFloat16;
    return p;
  }
  std::vector<uint16_t> forward() const {
    std::vector<uint16_t> out = unwritten(size_t(rows) * hidden);
    Swiglu p = launched();
    p.out = out.data();
    EXPECT_EQ(swiglu_forward(p, nullptr), cudaSuccess);
    return out;
  }
  /// d_gate_up, and behind it what is left in the place of d_out: the product, if it goes there.
  std::vector<uint16_t> backward(bool over_d_out) const {
    std::vector<uint16_t> d = unwritten(size_t(rows) * 2 * hidden), over = d_out.bits;
    Swiglu p = launched();
    p.d_gate_up = d.data(), p.d_out = over.data(), p.out = over_d_out ? over.data() : nullptr;
    EXPECT_EQ(swiglu_backward(p, nullptr), cudaSuccess);
    d.insert(d.end(), over.begin(), over.end());
    return d;
  }
  std::vector<Near> wanted() const {
    std::vector<Near> all;
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < hidden; ++i) {
        const Near gate = pair.at(0, r, 0, i);
        all.push_back(gate * sigmoid(gate) * pair.at(0, r, 0, hidden + i));
      }
    return all;
  }
  std::vector<Near> wanted_gradients() const {
    std::vector<Near> all(size_t(rows) * 2 * hidden);
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < hidden; ++i) {
        const Near gate = pair.at(0, r, 0, i), up = pair.at(0, r, 0, hidden + i),
                   d = d_out.at(0, r, 0, i), s = sigmoid(gate);
        all[size_t(r) * 2 * hidden + i] = d * up * (s + gate * s * (Near(1) - s));
        all[(size_t(r) * 2 + 1) * hidden + i] = d * gate * s;
      }
    return all;
  }
};

void expect_right(const SwigluProblem& x) {
  const std::vector<uint16_t> out = in_every_order([&] { return x.forward(); });
  expect_numbers(out, x.wanted(), x.half, "out");
  const size_t size = size_t(x.rows) * 2 * x.hidden;
  for (const bool over_d_out : {false, true}) {
    std::vector<uint16_t> have = in_every_order([&] { return x.backward(over_d_out); });
    const std::vector<uint16_t> over(have.begin() + size, have.end());
    EXPECT_TRUE(over == (over_d_out ? out : x.d_out.bits)) << "not the bits of the forward pass";
    have.resize(size);
    expect_numbers(have, x.wanted_gradients(), x.half, "d_gate_up");
  }
}

TEST(SwigluEmulated, ProductAndGradients) {
  for (const bool half : {false, true})
    for (const int rows : {1, 2, 3, 7})
      for (const int hidden : {8, 24, 248, 264}) expect_right(SwigluProblem(rows, hidden, half));
}

TEST(SwigluEmulated, RowsOfSeveralBlocksOfThreads) {
  expect_right(SwigluProblem(3, 8 * 256 * 2 + 40, false));
}

TEST(SwigluEmulated, LargeGatesSaturate) {
  SwigluProblem x(2, 16, false);
  const float gates[] = {-30000, -200, -100, -88, 88, 100, 200, 30000};
  for (int i = 0; i < 8; ++i) x.pair.set(0, 1, 0, i, gates[i]);
  expect_right(x);
}

TEST(SwigluEmulated, NonFiniteValuesStayInTheirColumn) {
  for (const float bad : {float(NAN), float(INFINITY)}) {
    SwigluProblem x(3, 16, true);
    x.pair.set(0, 0, 0, 5, NAN);
    x.pair.set(0, 1, 0, 16 + 9, bad);
    x.d_out.set(0, 2, 0, 3, bad);
    expect_right(x);
  }
}

TEST(SwigluEmulated, NoRowsAndSizesWithoutKernel) {
  EXPECT_TRUE(SwigluProblem(0, 16, false).forward().empty());
  EXPECT_TRUE(SwigluProblem(0, 16, false).backward(true).empty());
  const SwigluProblem x(1, 16, false);
  Swiglu p = x.launched();
  EXPECT_EQ(swiglu_backward(p, nullptr), cudaErrorInvalidValue) << "without d_out";
  p.d_out = x.d_out.bits.data();
  EXPECT_EQ(swiglu_forward(p, nullptr), cudaErrorInvalidValue) << "with d_out";
  for (const int hidden : {0, -8, 12}) {
    p.hidden = hidden;
    EXPECT_EQ(swiglu_backward(p, nullptr), cudaErrorInvalidValue) << hidden;
  }
}

}  // namespace
}  // namespace nsa::kernels::emulator
