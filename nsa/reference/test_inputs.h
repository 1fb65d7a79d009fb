#pragma once
// What the tests of this folder share: small random inputs and text of thrown errors.
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include "nsa/reference/inputs.h"

namespace nsa::reference {

/// Uniform in [-1, 1), multiples of 1/256; the same seed gives the same values everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761u + 1) {}
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 55) / 256.0 - 1.0;
  }
  Tensor<double> tensor(const Shape& shape) {
    Tensor<double> x(shape);
    for (double& value : x.values()) value = next();
    return x;
  }

 private:
  uint64_t state_;
};

inline PhiWeights random_phi(const Config& c, int64_t D, Random& random) {
  PhiWeights w;
  if (c.phi == Phi::kConv) w.conv = random.tensor({D, c.block_size});
  if (c.phi != Phi::kMlp) return w;
  w.pe = random.tensor({c.block_size, D});
  w.w1 = random.tensor({D, c.block_size * D});
  w.b1 = random.tensor({D});
  w.w2 = random.tensor({D, D});
  w.b2 = random.tensor({D});
  return w;
}

/// gates [B,S,Hq,3], or [B,S,Hkv,3] when `per_group`.
inline Inputs random_inputs(const Config& c, int64_t B, int64_t S, uint64_t seed,
                            bool per_group = false) {
  Random random(seed);
  Inputs x;
  x.q = random.tensor({B, S, c.num_heads, c.qk_head_dim});
  for (const auto k : {&Inputs::k_cmp_src, &Inputs::k_sel, &Inputs::k_win})
    x.*k = random.tensor({B, S, c.num_kv_heads, c.qk_head_dim});
  for (const auto v : {&Inputs::v_cmp_src, &Inputs::v_sel, &Inputs::v_win})
    x.*v = random.tensor({B, S, c.num_kv_heads, c.v_head_dim});
  x.gates = random.tensor({B, S, per_group ? c.num_kv_heads : c.num_heads, 3});
  x.phi_k = random_phi(c, c.qk_head_dim, random);
  x.phi_v = random_phi(c, c.v_head_dim, random);
  return x;
}

/// A small configuration in which every stage has something to do from a dozen tokens on.
inline Config small_config() {
  Config c;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 4, c.v_head_dim = 3;
  c.block_size = 4, c.block_stride = 2, c.sel_block_size = 4;
  c.top_n = 3, c.n_initial = 1, c.n_local = 1, c.window = 5;
  return c;
}

/// Bit for bit: NaN equals NaN of the same bits, 0 differs from -0.
template <class T>
bool same_bits(const Tensor<T>& x, const Tensor<T>& y) {
  return x.shape() == y.shape() &&
         (x.values().empty() ||
          std::memcmp(x.values().data(), y.values().data(), x.values().size() * sizeof(T)) == 0);
}

/// The text of what `call` throws; empty if it throws nothing.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace nsa::reference
