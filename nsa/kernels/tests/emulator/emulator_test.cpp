// The emulator by kernels of a few lines: what instructions do, and that faults are seen.
#include <gtest/gtest.h>

#include <vector>

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/tests/emulator/numbers.h"
#include "nsa/kernels/tests/emulator/order.h"

namespace nsa::kernels::portable {
namespace {

using emulator::set_order;

template <typename... Parameters, typename... Arguments>
void run(void (*kernel)(Parameters...), int blocks, int threads, size_t bytes,
         const Arguments&... arguments) {
  ASSERT_EQ(launch(kernel, blocks, threads, bytes, nullptr, arguments...), cudaSuccess);
}

__global__ void collect(int* out) {
  const int lane = threadIdx.x % 32;
  int* const own = out + (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  own[0] = __shfl_sync(~0u, lane * 10, lane / 2);
  own[1] = __shfl_xor_sync(~0u, lane, 5);
  own[2] = __shfl_up_sync(~0u, lane, 3);
  own[3] = __shfl_down_sync(~0u, lane, 3);
  own[4] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
  own[5] = __any_sync(~0u, lane == 7) * 2 + __all_sync(~0u, lane < 31);
  own[6] = static_cast<int>(__match_any_sync(~0u, lane / 8));
  // Lanes apart: two groups that meet among themselves.
  own[7] = lane < 16 ? __reduce_add_sync(0xffffu, lane) : __reduce_max_sync(0xffff0000u, -lane);
}

TEST(Emulator, Collectives) {
  for (int seed = 0; seed < 6; ++seed) {
    set_order(seed);
    std::vector<int> out(2 * 96 * 8);
    run(collect, 2, 96, 0, out.data());
    for (int i = 0; i < 2 * 96; ++i) {
      const int lane = i % 32;
      const int want[8] = {
          lane / 2 * 10, lane ^ 5, lane < 3 ? lane : lane - 3, lane > 28 ? lane : lane + 3,
          0x49249249,    2,        0xff << lane / 8 * 8,       lane < 16 ? 120 : -16};
      for (int j = 0; j < 8; ++j)
        EXPECT_EQ(out[i * 8 + j], want[j]) << seed << " " << i << " " << j;
    }
  }
}

__global__ void reverse(int* out, bool barrier) {
  auto* const shared = reinterpret_cast<int*>(dynamic_shared());
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST(Emulator, BarriersOrderWarps) {
  std::vector<int> out(256);
  for (int seed = 0; seed < 6; ++seed) {
    set_order(seed);
    run(reverse, 1, 256, 1024, out.data(), true);
    for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], 255 - i);
  }
}

TEST(Emulator, AMissingBarrierShowsAsOtherBits) {
  std::vector<int> first(256), second(256);
  set_order(0);
  run(reverse, 1, 256, 1024, first.data(), false);
  set_order(1);
  run(reverse, 1, 256, 1024, second.data(), false);
  EXPECT_NE(first, second);
  EXPECT_EQ(first[0], -1);  // shared memory was NaN
}

__global__ void halves(int* out) {
  auto* const shared = reinterpret_cast<int*>(dynamic_shared());
  const int half = threadIdx.x / 64, place = threadIdx.x % 64;
  for (int i = 0; i < half + 2; ++i) {  // the halves pass their barriers unequally often
    shared[threadIdx.x] = place + i;
    sync_threads(1 + half, 64);
    out[threadIdx.x] = shared[half * 64 + 63 - place];
    sync_threads(1 + half, 64);
  }
}

TEST(Emulator, NamedBarriers) {
  for (int seed = 0; seed < 6; ++seed) {
    set_order(seed);
    std::vector<int> out(128);
    run(halves, 1, 128, 512, out.data());
    for (int i = 0; i < 128; ++i) EXPECT_EQ(out[i], 63 - i % 64 + i / 64 + 1);
  }
}

/// What shared memory holds after copies of which `pending` groups may be under way.
template <int kPending>
__global__ void copy(const uint4* from, uint32_t* seen) {
  auto* const shared = reinterpret_cast<uint32_t*>(dynamic_shared());
  for (int group = 0; group < 2; ++group) {
    copy_async(shared_address(shared + group * 8), from + group);
    copy_async_or_zero(shared_address(shared + group * 8 + 4), from + group, false);
    commit_copies();
  }
  wait_copies<kPending>();
  for (int i = 0; i < 16; ++i) seen[i] = shared[i];
}

TEST(Emulator, CopiesLandWhenTheyAreWaitedForOrAtOnce) {
  const std::vector<uint4> from = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  const uint32_t nan = ~0u;
  const std::vector<uint32_t> both = {1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0};
  std::vector<uint32_t> first = both, seen(16);
  std::fill(first.begin() + 8, first.end(), nan);
  set_order(0);
  run(copy<0>, 1, 1, 64, from.data(), seen.data());
  EXPECT_EQ(seen, both);
  run(copy<1>, 1, 1, 64, from.data(), seen.data());
  EXPECT_EQ(seen, first);
  run(copy<2>, 1, 1, 64, from.data(), seen.data());
  EXPECT_EQ(seen, std::vector<uint32_t>(16, nan));
  set_order(1);
  run(copy<2>, 1, 1, 64, from.data(), seen.data());
  EXPECT_EQ(seen, both);
}

/// One product of 16x16 and 16x8 with operands as kernels load them: a by rows, b by rows of k.
template <typename T>
__global__ void multiply(const uint4* a, const uint4* b, float* d) {
  auto* const shared = reinterpret_cast<uint4*>(dynamic_shared());
  const int lane = threadIdx.x;
  shared[lane] = a[lane];
  if (lane < 16) shared[32 + lane] = b[lane];
  __syncwarp();
  uint32_t a_frag[4], b_frag[4];
  load_matrices(a_frag, shared_address(shared + lane % 16 * 2 + lane / 16));
  load_matrices_transposed(b_frag, shared_address(shared + 32 + lane % 16));
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = static_cast<float>(i);
  multiply_add<T>(sums, a_frag, b_frag[0], b_frag[1]);
  for (int i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

template <typename T>
void check_product(bool half) {
  emulator::Numbers a(1, 1, 16, 16, half), b(1, 1, 16, 8, half);
  a.draw(1, 1.f), b.draw(2, 1.f);
  a.set(0, 0, 3, 4, 6e-8f);  // subnormal in fp16
  a.set(0, 0, 9, 2, INFINITY);
  std::vector<float> d(128);
  run(multiply<T>, 1, 32, 768, reinterpret_cast<const uint4*>(a.bits.data()),
      reinterpret_cast<const uint4*>(b.bits.data()), d.data());
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      const int before = row / 8 * 2 + column % 2;
      double want = before;
      for (int k = 0; k < 16; ++k) want += a.at(0, 0, row, k) * b.at(0, 0, k, column);
      if (row == 9)
        EXPECT_EQ(d[row * 8 + column], want);
      else
        EXPECT_NEAR(d[row * 8 + column], want, 1e-5) << row << " " << column;
    }
}

TEST(Emulator, MatricesAndProducts) {
  set_order(3);
  check_product<__nv_bfloat16>(false);
  check_product<__half>(true);
}

__global__ void touch(int place, bool write) {
  auto* const shared = dynamic_shared();
  if (write)
    shared[place] = 1;
  else
    fast_exp2(*reinterpret_cast<volatile float*>(shared + place));
}
__global__ void lane_stays_away() {
  if (threadIdx.x != 5) __syncwarp();
}
__global__ void wrong_company() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __ballot_sync(~0u, 1);
}
__global__ void warp_stays_away() {
  if (threadIdx.x < 32) sync_threads(1, 64);
}
__global__ void reads_unnamed() {
  if (threadIdx.x < 16) __shfl_sync(0xffffu, 1, 20);
}
__global__ void odd_matrix() {
  uint32_t to[4];
  load_matrices(to, shared_address(dynamic_shared()) + 8);
}
__global__ void far_matrix() {
  uint32_t to[4];
  load_matrices(to, shared_address(dynamic_shared()) + 16 * threadIdx.x);
}

TEST(EmulatorDeathTest, FaultsEndTheProgramWithTheirReason) {
  set_order(0);
  EXPECT_DEATH(run(touch, 1, 1, 256, 4096, true), "access 4096 bytes from the start");
  EXPECT_DEATH(run(touch, 1, 1, 256, 256, false), "access 256 bytes from the start");
  EXPECT_DEATH(run(touch, 1, 1, 250, 252, true), "beside the dynamic shared memory");
  EXPECT_DEATH(run(touch, 1, 1, 256, -4, true), "beside the dynamic shared memory");
  EXPECT_DEATH(run(lane_stays_away, 1, 32, 0), "__syncwarp");
  EXPECT_DEATH(run(wrong_company, 1, 32, 0), "__ballot_sync of lanes .* are at __syncwarp");
  EXPECT_DEATH(run(warp_stays_away, 1, 64, 0), "threads wait for what will not come");
  EXPECT_DEATH(run(reads_unnamed, 1, 32, 0), "a shuffle reads lane 20");
  EXPECT_DEATH(run(odd_matrix, 1, 32, 1024), "ldmatrix: shared address 8");
  EXPECT_DEATH(run(far_matrix, 1, 32, 496), "ldmatrix: shared address 496");
  EXPECT_DEATH(run(touch, 1, 1, 163841, 0, true), "no block of 1 threads");
}

}  // namespace
}  // namespace nsa::kernels::portable
