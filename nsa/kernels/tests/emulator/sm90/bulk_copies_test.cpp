// Tensor maps, bulk copies, mbarriers and what else of sm_90 is not wgmma, in the emulator: what
// they do, and that faults are seen.
#include <cutlass/arch/barrier.h>
#include <gtest/gtest.h>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include <vector>

#include "nsa/kernels/common/sm90/instructions.cuh"
#include "nsa/kernels/common/sm90/launch.cuh"
#include "nsa/kernels/common/sm90/tensor_map.h"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/numbers.h"
#include "nsa/kernels/tests/emulator/order.h"

namespace nsa::kernels::sm90 {
namespace {

using Barrier = cutlass::arch::ClusterTransactionBarrier;
using cutlass::arch::NamedBarrier;
using emulator::Numbers, emulator::set_order;

template <typename... Parameters, typename... Arguments>
void run(void (*kernel)(Parameters...), int threads, size_t bytes, const Arguments&... arguments) {
  emulator::set_card(emulator::Card::kH100);
  ASSERT_EQ(portable::launch(kernel, 1, threads, bytes, nullptr, arguments...), cudaSuccess);
}

struct alignas(1024) Shared {
  uint16_t box[2][2 * 24 * 64];
  uint64_t full[2], empty[2];
};
Shared& shared() {
  NSA_UNALIGNED_SHARED(raw);
  return *reinterpret_cast<Shared*>(raw + (-portable::shared_address(raw) & 1023));
}
constexpr size_t kBytes = sizeof(Shared) + 1024;

enum Defect { kNone, kFewBytes, kManyBytes, kNoWait, kReleasedEarly, kNobodyReleases };

/// Thread 0 loads boxes of 24 tokens of 2 heads, one after the other in two places; a warp reads
/// them.
__global__ void through_boxes(const __grid_constant__ CUtensorMap map, int boxes, Defect defect,
                              uint16_t* out) {
  Shared& s = shared();
  constexpr uint32_t kBoxBytes = 2 * 24 * 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) Barrier::init(&s.full[i], 1), Barrier::init(&s.empty[i], 32);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  for (int i = 0; i < boxes && threadIdx.x == 0; ++i) {
    const uint32_t bytes = kBoxBytes + (defect == kManyBytes ? 16 : defect == kFewBytes ? -16 : 0);
    Barrier::wait(&s.empty[i % 2], (i / 2 & 1) ^ 1);
    Barrier::arrive_and_expect_tx(&s.full[i % 2], bytes);
    cute::SM90_TMA_LOAD_4D::copy(&map, &s.full[i % 2], 0, s.box[i % 2], 64, 1, i * 24 - 3, 1);
  }
  for (int i = 0; i < boxes && threadIdx.x >= 32; ++i) {
    if (defect != kNoWait) Barrier::wait(&s.full[i % 2], i / 2 & 1);
    if (defect == kReleasedEarly) Barrier::arrive(&s.empty[i % 2]);
    if (defect == kReleasedEarly) __syncwarp();
    for (int x = threadIdx.x - 32; x < 2 * 24 * 64; x += 32) {
      const int row = x / 64, piece = x % 64 / 8;
      out[i * 2 * 24 * 64 + x] = s.box[i % 2][row * 64 + (piece ^ row % 8) * 8 + x % 8];
    }
    if (defect == kNoWait) Barrier::wait(&s.full[i % 2], i / 2 & 1);
    if (defect == kNone || defect == kFewBytes || defect == kManyBytes)
      Barrier::arrive(&s.empty[i % 2]);
  }
}

/// Values that are not what a box of [2, 50, 4, 128] holds.
int wrong_values(Defect defect, int seed) {
  Numbers x(2, 50, 4, 128, false, 8);
  x.draw(1, 1.f);
  CUtensorMap map;
  EXPECT_EQ(make_tensor_map(map, x.bits.data(), false, 128, 4, 50, 2, x.head_stride, x.token_stride,
                            x.batch_stride, 2, 24),
            cudaSuccess);
  const int boxes = defect == kNoWait ? 2 : 5;  // as many as there are places: none is reused
  std::vector<uint16_t> out(boxes * 2 * 24 * 64);
  set_order(seed);
  run(through_boxes, 64, kBytes, map, boxes, defect, out.data());
  int wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const int column = 64 + int(i % 64), head = 1 + int(i / 64 % 2), token = int(i / 128) - 3;
    const bool inside = token >= 0 && token < 50;
    wrong += out[i] != (inside ? x.bits[x.place(1, token, head, column)] : 0);
  }
  return wrong;
}

TEST(EmulatedCopies, BoxesOfTensors) {
  for (int seed = 0; seed < 8; ++seed) EXPECT_EQ(wrong_values(kNone, seed), 0) << seed;
}

TEST(EmulatedCopies, BoxesLandAtAnyTime) {
  EXPECT_GT(wrong_values(kNoWait, 0), 0);         // late: not there yet
  EXPECT_GT(wrong_values(kReleasedEarly, 1), 0);  // early: another one is
}

TEST(EmulatedCopiesDeathTest, WrongBytesAndArrivals) {
  EXPECT_DEATH(wrong_values(kFewBytes, 2), "bytes land, it waits for");
  EXPECT_DEATH(wrong_values(kManyBytes, 2),
               "misses 0 of 1 arrivals and 16 bytes(.|\\n)*wait for what will not come");
  EXPECT_DEATH(wrong_values(kNobodyReleases, 2),
               "thread 0 waits at mbarrier .* misses 32 of 32 arrivals");
}

TEST(EmulatedCopies, TheEncoderRefusesWhatTheDriverDoes) {
  Numbers x(1, 8, 1, 64, false);
  const auto make = [&](int token_stride, int box_tokens, int offset) {
    CUtensorMap map;
    return make_tensor_map(map, x.bits.data() + offset, false, 64, 1, 8, 1, 64, token_stride, 512,
                           1, box_tokens);
  };
  EXPECT_EQ(make(64, 8, 0), cudaSuccess);
  EXPECT_EQ(make(60, 8, 0), cudaErrorInvalidValue);  // a stride of 120 bytes
  EXPECT_EQ(make(64, 257, 0), cudaErrorInvalidValue);
  EXPECT_EQ(make(64, 8, 4), cudaErrorInvalidValue);  // an address of 8 bytes
}

/// Every thread of a warp copies 16 bytes by cp.async, thread 0 also a run of bytes in bulk.
__global__ void by_bytes(const uint4* from, uint4* to, bool waits) {
  Shared& s = shared();
  auto* const room = reinterpret_cast<uint4*>(s.box);
  if (threadIdx.x == 0) Barrier::init(s.full, 33);
  __syncthreads();
  if (threadIdx.x == 0) {
    Barrier::arrive_and_expect_tx(s.full, 32 * 16);
    copy_bulk(portable::shared_address(room + 32), from + 32, 32 * 16,
              portable::shared_address(s.full), 0);
  }
  if (threadIdx.x < 32) {
    portable::copy_async(portable::shared_address(room + threadIdx.x), from + threadIdx.x);
    cutlass::arch::cpasync_barrier_arrive_noinc(s.full);
  } else {
    if (waits) Barrier::wait(s.full, 0);
    for (int i = 0; i < 2; ++i) to[threadIdx.x - 32 + i * 32] = room[threadIdx.x - 32 + i * 32];
    if (!waits) Barrier::wait(s.full, 0);
  }
}

TEST(EmulatedCopies, BytesAndThreadsCopies) {
  std::vector<uint4> from(64), to(64);
  for (unsigned i = 0; i < 64; ++i) from[i] = {i, i * 2, i * 3, i * 4};
  const auto wrong = [&](int seed, bool waits) {
    set_order(seed);
    run(by_bytes, 64, kBytes, from.data(), to.data(), waits);
    return std::memcmp(from.data(), to.data(), from.size() * 16) != 0;
  };
  for (int seed = 0; seed < 8; ++seed) EXPECT_FALSE(wrong(seed, true)) << seed;
  EXPECT_TRUE(wrong(0, false));
}

/// Warpgroups take turns: each adds its number to a sum that depends on their order.
__global__ void turns(int* sum) {
  const int own = threadIdx.x / 128, next = (own + 1) % 3;
  if (own == 2) NamedBarrier::arrive(256, 0);
  for (int i = 0; i < 4; ++i) {
    NamedBarrier::sync(256, own);
    if (threadIdx.x % 128 == 0) *sum = *sum * 3 + own;
    NamedBarrier::arrive(256, next);
  }
  if (own == 0) NamedBarrier::sync(256, own);
}
__global__ void vote(int* any, int who) {
  any[threadIdx.x] = any_of_warpgroup(int(threadIdx.x) == who, threadIdx.x / 128);
}
/// Matrices that are stored and loaded again.
__global__ void matrices(uint32_t* out) {
  auto* const room = reinterpret_cast<uint4*>(&shared());
  const uint32_t at = portable::shared_address(room + threadIdx.x);
  const uint32_t x = threadIdx.x * 4;
  store_matrices(at, x, x + 1, x + 2, x + 3);
  __syncwarp();
  uint32_t to[4];
  portable::load_matrices(to, at);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = to[i];
  out[128 + threadIdx.x] = reinterpret_cast<const uint32_t*>(room)[threadIdx.x];
}

TEST(EmulatedCopies, NamedBarriersAndMatrices) {
  for (int seed = 0; seed < 6; ++seed) {
    set_order(seed);
    int sum = 0, want = 0;
    run(turns, 384, 0, &sum);
    for (int i = 0; i < 12; ++i) want = want * 3 + i % 3;
    EXPECT_EQ(sum, want);
    std::vector<int> any(256);
    run(vote, 256, 0, any.data(), 130);
    for (int i = 0; i < 256; ++i) EXPECT_EQ(any[i], i / 128);
    std::vector<uint32_t> out(160);
    run(matrices, 32, kBytes, out.data());
    for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i);
    for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[128 + i], i * 4);  // the first matrix by rows
  }
}

/// A warp gives a place back as soon as it has loaded matrices from it; another one has it filled.
__global__ void overwritten(const uint4* from, bool fenced, uint32_t* out) {
  Shared& s = shared();
  if (threadIdx.x == 0) Barrier::init(s.full, 1), Barrier::init(s.empty, 32);
  const uint32_t at = portable::shared_address(&s.box) + threadIdx.x % 32 * 16;
  if (threadIdx.x < 32) portable::store_shared(at, from[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x < 32) {
    uint32_t to[4];
    portable::load_matrices(to, at);
    if (fenced) cutlass::arch::fence_view_async_shared();
    Barrier::arrive(s.empty);
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = to[i];
  } else if (threadIdx.x == 32) {
    Barrier::wait(s.empty, 0);
    Barrier::arrive_and_expect_tx(s.full, 512);
    copy_bulk(portable::shared_address(&s.box), from + 32, 512, portable::shared_address(s.full),
              0);
    Barrier::wait(s.full, 0);
  }
}

TEST(EmulatedCopiesDeathTest, PlacesThatAreStillLoaded) {
  std::vector<uint4> from(64, make_uint4(7, 7, 7, 7));
  std::vector<uint32_t> out(128);
  for (int seed = 0; seed < 6; ++seed) {
    set_order(seed);
    run(overwritten, 64, kBytes, from.data(), true, out.data());
    EXPECT_EQ(out, std::vector<uint32_t>(128, 7));
    EXPECT_DEATH(run(overwritten, 64, kBytes, from.data(), false, out.data()),
                 "overwrites what warp 0 has just loaded");
  }
}

__global__ void odd_barrier(int defect) {
  Shared& s = shared();
  if (defect == 0) Barrier::arrive(s.full);
  if (defect == 1) s.full[0] = 0, Barrier::wait(s.full, 0);
  if (defect == 2) {  // its phase waits for bytes, its one arrival has come
    Barrier::init(s.full, 1);
    Barrier::arrive_and_expect_tx(s.full, 16);
    Barrier::arrive(s.full);
  }
  if (defect == 3) {
    Barrier::init(s.full, 1);
    Barrier::arrive_and_expect_tx(s.full, 16);
    copy_bulk(portable::shared_address(s.box), &s.empty, 16, portable::shared_address(s.full), 0);
  }
  if (defect == 4) NamedBarrier::sync(32, 8);
}

TEST(EmulatedCopiesDeathTest, BarriersThatAreNone) {
  set_order(0);
  const auto with = [](int defect) { run(odd_barrier, 1, kBytes, defect); };
  EXPECT_DEATH(with(0), "is no mbarrier");
  EXPECT_DEATH(with(1), "is no mbarrier");
  EXPECT_DEATH(with(2), "an arrival beyond the 1 of its phase");
  EXPECT_DEATH(with(3), "ended before what it copies");
  EXPECT_DEATH(with(4), "there is no barrier 16");
}

}  // namespace
}  // namespace nsa::kernels::sm90
