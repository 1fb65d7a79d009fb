// Gated sums of branches on drawn numbers: what their kernels are launched with, what they give,
// and what Eq. 5 of the paper and its derivatives want of them.
#pragma once
#include <array>
#include <cmath>
#include <random>

#include "nsa/kernels/tests/tokens/near.h"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels::emulator {

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
inline Forward forward(const CombineProblem& x, bool with_gates = true) {
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
inline Backward backward(const CombineProblem& x) {
  Backward to(x);
  Combine p = x.launched();
  p.d_logits = to.gradients(x);
  to.branches.assign(3, unwritten(x.d_out.bits.size()));
  for (int i = 0; i < 3; ++i) p.d_branch[i] = to.branches[i].data();
  EXPECT_EQ(combine_backward(p, nullptr), cudaSuccess);
  return to;
}

/// Statistics of the branches: one as the interval branches read them, one as the selected branch,
/// one in the order of KV heads with a gap between rows.
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
inline int place_of(const CombineCase& c, int row, bool by_kv_head) {
  const int head = row % c.heads(), t = row / c.heads() % c.tokens, b = row / c.heads() / c.tokens;
  return by_kv_head ? ((b * c.kv_heads + head / c.group) * c.tokens + t) * c.group + head % c.group
                    : row;
}

}  // namespace nsa::kernels::emulator
