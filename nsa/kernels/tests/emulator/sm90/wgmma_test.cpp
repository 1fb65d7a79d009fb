// Products of warpgroups in the emulator: what they are, and that faults are seen.
#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>
#include <gtest/gtest.h>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include <vector>

#include "nsa/kernels/common/sm90/instructions.cuh"
#include "nsa/kernels/common/sm90/launch.cuh"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/numbers.h"
#include "nsa/kernels/tests/emulator/order.h"

namespace nsa::kernels::sm90 {
namespace {

using namespace cute;
using emulator::Numbers, emulator::set_order;

template <typename... Parameters, typename... Arguments>
void run(void (*kernel)(Parameters...), int threads, size_t bytes, const Arguments&... arguments) {
  emulator::set_card(emulator::Card::kH100);
  ASSERT_EQ(portable::launch(kernel, 1, threads, bytes, nullptr, arguments...), cudaSuccess);
}

/// The block's shared memory as `Shared`, at a multiple of 1024.
template <class Shared>
Shared& shared() {
  NSA_UNALIGNED_SHARED(raw);
  return *reinterpret_cast<Shared*>(raw + (-portable::shared_address(raw) & 1023));
}

/// Operands of a product of 64 x kColumns x 64; b by rows of k or of columns.
template <typename T, int kColumns, bool kByRows, bool kRegistersOfA>
struct Product {
  static constexpr bool kRegisters = kRegistersOfA;
  using Sizes = Shape<Int<kColumns>, _64>;
  static auto layout_of_b() {
    if constexpr (kByRows) {
      return tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{}, Sizes{}, Step<_2, _1>{});
    } else {
      return tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Sizes{});
    }
  }
  using LayoutA = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_64, _64>{}));
  using LayoutB = decltype(layout_of_b());
  static constexpr GMMA::Major kMajor = kByRows ? GMMA::Major::MN : GMMA::Major::K;
  using Shapes = Shape<_64, Int<kColumns>, _64>;
  static auto mma() {
    if constexpr (kRegisters) {
      return make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shapes, GMMA::Major::K, kMajor>());
    } else {
      return make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shapes, GMMA::Major::K, kMajor>());
    }
  }
  struct Shared {
    alignas(1024) T a[64 * 64];
    alignas(1024) T b[64 * kColumns];
  };
};

enum Defect {
  kNone,
  kNoFence,
  kOverwritten,
  kReadEarly,
  kNoProxyFence,
  kOneWarpLess,
  kOtherOperand
};

/// d = 2 a b, plus 1: of two batches.
template <class P, typename T>
__global__ void multiply(const T* a, const T* b, float* d, int columns, Defect defect) {
  auto& s = shared<typename P::Shared>();
  Tensor all_a = make_tensor(make_smem_ptr(s.a), typename P::LayoutA{});
  Tensor all_b = make_tensor(make_smem_ptr(s.b), typename P::LayoutB{});
  for (int i = threadIdx.x; i < 64 * 64; i += 128) all_a(i / 64, i % 64) = a[i];
  for (int i = threadIdx.x; i < columns * 64; i += 128) all_b(i / 64, i % 64) = b[i];
  if (defect != kNoProxyFence) cutlass::arch::fence_view_async_shared();
  __syncthreads();
  auto mma = P::mma();
  auto thread = mma.get_thread_slice(threadIdx.x);
  Tensor own_a = thread.partition_fragment_A(all_a);
  Tensor own_b = thread.partition_fragment_B(all_b);
  Tensor sums = partition_fragment_C(mma, Shape<_64, Int<size<0>(typename P::LayoutB{})>>{});
  if constexpr (P::kRegisters) {
    Tensor from = thread.partition_A(all_a);
    for (int i = 0; i < size(own_a); ++i) own_a(i) = from(i);
  }
  for (int i = 0; i < size(sums); ++i) sums(i) = 1.f;
  if (defect == kOneWarpLess && threadIdx.x >= 96) return;
  for (int batch = 0; batch < 2; ++batch) {
    if (defect != kNoFence) warpgroup_arrive();
    for (int k = 0; k < size<2>(own_b); ++k) {
      const int other = defect == kOtherOperand && threadIdx.x / 32 == 2 ? 0 : k;
      gemm(mma, own_a(_, _, k), own_b(_, _, other), sums);
    }
    warpgroup_commit_batch();
  }
  if (defect == kOverwritten)
    for (int i = threadIdx.x; i < columns * 64; i += 128) all_b(i / 64, i % 64) = T(7.f);
  if (defect == kOverwritten) cutlass::arch::fence_view_async_shared();
  if (defect == kReadEarly) {
    warpgroup_wait<1>();
  } else {
    warpgroup_wait<0>();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < size(sums); ++i)
    d[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * columns + i / 4 * 8 + lane % 4 * 2 + i % 2] =
        sums(i);
  if (defect == kReadEarly) warpgroup_wait<0>();
}

/// Largest difference to fp64.
template <typename T, int kColumns, bool kByRows, bool kRegisters>
double error_of_product(Defect defect = kNone) {
  using P = Product<T, kColumns, kByRows, kRegisters>;
  const bool half = std::is_same_v<T, cutlass::half_t>;
  Numbers a(1, 1, 64, 64, half), b(1, 1, kColumns, 64, half);
  a.draw(1, 1.f), b.draw(2, 1.f);
  std::vector<float> d(64 * kColumns);
  run(multiply<P, T>, 128, sizeof(typename P::Shared) + 1024,
      reinterpret_cast<const T*>(a.bits.data()), reinterpret_cast<const T*>(b.bits.data()),
      d.data(), kColumns, defect);
  double error = 0;
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < kColumns; ++column) {
      double want = 1;
      for (int k = 0; k < 64; ++k) want += 2 * a.at(0, 0, row, k) * b.at(0, 0, column, k);
      const double difference = std::fabs(d[row * kColumns + column] - want);
      if (!(difference <= error)) error = difference;  // NaN stays
    }
  return error;
}

TEST(EmulatedWgmma, Products) {
  for (int seed = 0; seed < 6; ++seed) {
    set_order(seed);
    using Bfloat = cutlass::bfloat16_t;
    using Half = cutlass::half_t;
    EXPECT_LT((error_of_product<Bfloat, 64, false, false>()), 1e-4) << seed;
    EXPECT_LT((error_of_product<Half, 128, true, true>()), 1e-4) << seed;
    EXPECT_LT((error_of_product<Half, 192, false, false>()), 1e-4) << seed;
    EXPECT_LT((error_of_product<Bfloat, 128, true, false>()), 1e-4) << seed;
    EXPECT_LT((error_of_product<Bfloat, 32, false, true>()), 1e-4) << seed;
  }
}

double error_with(Defect defect, int seed) {
  set_order(seed);
  return error_of_product<cutlass::bfloat16_t, 64, true, false>(defect);
}

TEST(EmulatedWgmma, OperandsAreReadAndSumsWrittenAtAnyTime) {
  for (int seed = 0; seed < 6; ++seed) EXPECT_LT(error_with(kNone, seed), 1e-4);
  // Order 1 computes at the wait, order 0 when issued.
  EXPECT_GT(error_with(kOverwritten, 1), 1);
  EXPECT_GT(error_with(kReadEarly, 1), 1);
  EXPECT_LT(error_with(kReadEarly, 0), 1e-4);
}

TEST(EmulatedWgmma, PlainStoresAreSeenAfterAFence) {
  for (int seed = 0; seed < 4; ++seed) EXPECT_TRUE(std::isnan(error_with(kNoProxyFence, seed)));
}

TEST(EmulatedWgmmaDeathTest, FaultsEndTheProgramWithTheirReason) {
  EXPECT_DEATH(error_with(kNoFence, 0), "wgmma without wgmma.fence");
  EXPECT_DEATH(error_with(kOneWarpLess, 2), "issued .* products, the warps beside it");
  EXPECT_DEATH(error_with(kOtherOperand, 3), "another one in the warps beside it");
}

}  // namespace
}  // namespace nsa::kernels::sm90
