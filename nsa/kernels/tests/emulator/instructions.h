// The instructions of sm80/mma.cuh, emulated.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "nsa/kernels/tests/emulator/async_memory.h"
#include "nsa/kernels/tests/emulator/intrinsics.h"

namespace nsa::kernels::portable {

inline uint32_t shared_address(const void* p) { return emulator::shared_address(p); }
inline void copy_async(uint32_t to, const void* from) { emulator::copy_async(to, from, 16); }
inline void copy_async_or_zero(uint32_t to, const void* from, bool valid) {
  emulator::copy_async(to, from, valid ? 16 : 0);
}
inline void copy_async_8(uint32_t to, const void* from) { emulator::copy_async(to, from, 8, 8); }
inline void commit_copies() { emulator::commit_copies(); }
template <int kPending>
void wait_copies() {
  emulator::wait_copies(kPending);
}
inline uint4 ask(const void* from) { return *static_cast<const uint4*>(from); }
inline double ask(const double* from) { return *from; }
inline int64_t ask(const int64_t* from) { return *from; }
inline void store_shared(uint32_t to, const uint4& x) {
  std::memcpy(emulator::shared_at(to, 16, "st.shared"), &x, 16);
}
inline void sync_threads(int barrier, int count) { emulator::barrier(barrier, count); }
inline float fast_exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.f : y;  // NaN stays
}

inline float is_above(float x, float y) { return x > y ? 1.f : 0.f; }
inline int anew(int x) { return x; }
template <typename T>
T* anew(T* x) {
  return x;
}

struct MatrixLoad {
  uint32_t (*to)[4];
  uint32_t address;
};
/// `kTransposed`: lane i gets elements of column i / 4 instead of row i / 4.
template <bool kTransposed>
void load_four_matrices(uint32_t (&to)[4], uint32_t address, const char* what) {
  emulator::begin_load(address);
  MatrixLoad own{&to, address};
  emulator::meet(what, ~0u, &own, [](void* const(&lanes)[32], uint32_t) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      const uint16_t* rows[8];
      for (int i = 0; i < 8; ++i)
        rows[i] = reinterpret_cast<const uint16_t*>(emulator::shared_at(
            static_cast<const MatrixLoad*>(lanes[matrix * 8 + i])->address, 16, "ldmatrix"));
      for (int i = 0; i < 32; ++i) {
        const int major = i / 4, minor = i % 4 * 2;
        const uint32_t low = kTransposed ? rows[minor][major] : rows[major][minor],
                       high = kTransposed ? rows[minor + 1][major] : rows[major][minor + 1];
        (*static_cast<MatrixLoad*>(lanes[i])->to)[matrix] = low | high << 16;
      }
    }
  });
}
inline void load_matrices(uint32_t (&to)[4], uint32_t address) {
  load_four_matrices<false>(to, address, "ldmatrix");
}
inline void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
  load_four_matrices<true>(to, address, "ldmatrix.trans");
}

inline float value_of(uint32_t bits, __nv_bfloat16) { return __uint_as_float(bits << 16); }
inline float value_of(uint32_t bits, __half) {
  const uint32_t sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
  if (rest >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest << 13) * 0x1p112f));
}

/// Sums of eight products, added to d one after the other: the order within a sum is the machine's
/// own, none is promised.
struct Product {
  float (*d)[4];
  const uint32_t (*a)[4];
  uint32_t b[2];
};
template <typename T>
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Product own{&d, &a, {b0, b1}};
  emulator::meet("mma", ~0u, &own, [](void* const(&lanes)[32], uint32_t) {
    float a_rows[16][16], b_rows[16][8];  // [row][k], [k][column]
    for (int i = 0; i < 32; ++i) {
      const auto& x = *static_cast<const Product*>(lanes[i]);
      const int row = i / 4, k = i % 4 * 2;
      for (int j = 0; j < 4; ++j)
        for (int high = 0; high < 2; ++high)
          a_rows[row + j % 2 * 8][k + j / 2 * 8 + high] =
              value_of((*x.a)[j] >> 16 * high & 0xffff, T{});
      for (int j = 0; j < 2; ++j)
        for (int high = 0; high < 2; ++high)
          b_rows[k + j * 8 + high][row] = value_of(x.b[j] >> 16 * high & 0xffff, T{});
    }
    for (int row = 0; row < 16; ++row) {
      float sums[2][8] = {};
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 8; ++column)
          sums[k / 8][column] += a_rows[row][k] * b_rows[k][column];
      for (int column = 0; column < 8; ++column) {
        const auto& x = *static_cast<const Product*>(lanes[row % 8 * 4 + column / 2]);
        float& to = (*x.d)[row / 8 * 2 + column % 2];
        to = (to + sums[0][column]) + sums[1][column];
      }
    }
  });
}

}  // namespace nsa::kernels::portable
