#pragma once
#include <cstdint>

/// Random numbers as a function of their place: counters instead of a state make any row of a
/// source reproducible by itself.
namespace nsa::train {

/// SplitMix64's output function: a bijection of 64 bits in which every input bit moves about half
/// of the output bits.
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// 64 random bits for (seed, row, index).
inline uint64_t draw_bits(uint64_t seed, int64_t row, uint64_t index) {
  return mix_bits(mix_bits(mix_bits(seed) ^ static_cast<uint64_t>(row)) ^ index);
}

/// Uniform in [0, bound) from 64 random bits; the bias is below bound / 2^64.
inline uint64_t below(uint64_t bits, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

/// The numbers of one row, one after the other.
class RowRandom {
 public:
  RowRandom(uint64_t seed, int64_t row) : seed_(seed), row_(row) {}
  /// Uniform in [0, bound).
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(
        train::below(draw_bits(seed_, row_, next_++), static_cast<uint64_t>(bound)));
  }
  /// Uniform in (0, 1).
  double unit() {
    return (static_cast<double>(draw_bits(seed_, row_, next_++) >> 11) + 0.5) * 0x1p-53;
  }

 private:
  uint64_t seed_;
  int64_t row_;
  uint64_t next_ = 0;
};

}  // namespace nsa::train
