// What the kernels of the selected branch in the order of keys share: an item's key tile stays in
// shared memory, the rows that attend it are gathered in tiles of 64 and pass by. A row is a
// (token, head of the group) pair, row = pair of the list * G + head, so any group size fills the
// tiles.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/numeric_types.h>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/common/sm90/instructions.cuh"
#include "nsa/kernels/common/sm90/launch.cuh"
#include "nsa/kernels/selected/parts.cuh"
#include "nsa/kernels/selected/selected_work.cuh"

namespace nsa::kernels::sm90 {

using namespace cute;

using portable::selected_arguments;
using portable::SelectedArguments;
using portable::SelectedWork;

/// Of the current device.
inline cudaError_t count_sms(int& sms) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  return status == cudaSuccess
             ? cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device)
             : status;
}

/// A CTA an SM, which takes item after item.
template <class Kernel>
cudaError_t launch_items(void (*kernel)(SelectedArguments), const SelectedArguments& a,
                         const SelectedPlan& plan, cudaStream_t stream) {
  int sms = 0;
  const cudaError_t status = count_sms(sms);
  if (status != cudaSuccess) return status;
  const int64_t most = int64_t{plan.items_of_head} * a.heads;
  return portable::launch(kernel, static_cast<unsigned>(std::min<int64_t>(most, sms)),
                          Kernel::kThreads, Kernel::kSharedBytes, stream, a);
}

__device__ __forceinline__ float exp2_fast(float x) { return portable::fast_exp2(x); }
using portable::copy_async_8;

/// cutlass's element types as the ones of CUDA.
template <typename T>
struct ElementTraits;
template <>
struct ElementTraits<cutlass::bfloat16_t> {
  using Cuda = __nv_bfloat16;
  static constexpr uint32_t kExponent = 0x7f80;
  __device__ static float2 unpack(uint32_t x) {
    return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
  }
};
template <>
struct ElementTraits<cutlass::half_t> {
  using Cuda = __half;
  static constexpr uint32_t kExponent = 0x7c00;
  __device__ static float2 unpack(uint32_t x) {
    return __half22float2(*reinterpret_cast<const __half2*>(&x));
  }
};
/// 8 values, of which one is not finite.
template <typename T>
__device__ __forceinline__ bool not_finite(const uint4& x) {
  constexpr uint32_t kLow = ElementTraits<T>::kExponent, kHigh = kLow << 16;
  bool bad = false;
  for (const uint32_t pair : {x.x, x.y, x.z, x.w})
    bad |= (pair & kLow) == kLow || (pair & kHigh) == kHigh;
  return bad;
}

/// Barriers, with the compiler kept from moving memory operations across them.
CUTE_DEVICE void wait_for(uint64_t& barrier, uint32_t phase) {
  cutlass::arch::ClusterTransactionBarrier::wait(&barrier, phase);
  asm volatile("" ::: "memory");
}
CUTE_DEVICE void arrive_at(uint64_t& barrier) {
  asm volatile("" ::: "memory");
  cutlass::arch::ClusterBarrier::arrive(&barrier);
}
/// Arrives now, for what this thread stored, and when its copies have landed.
CUTE_DEVICE void arrive_with_copies(uint64_t& barrier) {
  cutlass::arch::cpasync_barrier_arrive_noinc(&barrier);
  arrive_at(barrier);
}

/// The items of a set, head after head, for one thread of a CTA that takes them from the counter.
struct ItemQueue {
  int head = 0, before = 0, count;  // items before the head's, of the head

  CUTE_DEVICE explicit ItemQueue(const SelectedArguments& a) : count(SelectedWork::count(a, 0)) {}
  /// An item of no rows when none is left.
  CUTE_DEVICE SelectedWork take(const SelectedArguments& a) {
    const int which = atomicAdd(a.next_item, 1);
    SelectedWork w{};
    while (which >= before + count) {
      before += count;
      if (++head == a.heads) {
        --head, count = 0;  // `which` only grows
        return w;
      }
      count = SelectedWork::count(a, head);
    }
    w.read(a, head, which - before);
    return w;
  }
};

/// Shared-memory tiles of 64 rows: 64-column chunks of 128-byte rows, 16-byte pieces swizzled by
/// row. As rows x columns, and the same memory as columns x rows.
template <typename T, int kColumns>
using RowTile =
    decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<_64, Int<kColumns>>{}));
template <typename T, int kColumns>
using ColumnTile = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{},
                                          Shape<Int<kColumns>, _64>{}, Step<_2, _1>{}));
/// Element of such a tile where 16-byte piece `piece` of row `row` begins.
CUTE_DEVICE int piece_of_tile(int row, int piece) {
  return piece / 8 * 4096 + row * 64 + (piece % 8 ^ row % 8) * 8;
}

/// Tiles of 64 gathered rows of the backward pass: the same blocks of 8 rows x 64 columns, but
/// those of 8 rows one behind the other.
template <typename T, int kColumns>
using GatheredRows = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{},
                                            Shape<_64, Int<kColumns>>{}, Step<_2, _1>{}));
template <typename T, int kColumns>
using GatheredColumns = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{},
                                               Shape<Int<kColumns>, _64>{}, Step<_1, _2>{}));

/// Where rows begin in a tensor, in 16 bytes from the first row of the CTA's (sequence, KV head).
struct RowStrides {
  int32_t token, head;

  CUTE_DEVICE explicit RowStrides(const Strided& x)
      : token(static_cast<int32_t>(x.token / 8)), head(static_cast<int32_t>(x.head / 8)) {}
};

/// 128 threads fill tiles: thread t has 16-byte piece t % 8 of every 64 columns of rows t / 8 + 16
/// i. `offset`: in 16 bytes, from row `from`, its piece t % 8; below 0: zeros.
template <int kColumns, bool kGathered, typename T>
CUTE_DEVICE void copy_row(T* tile, uint32_t thread, int i, const T* from, int offset) {
  constexpr int kBlock = 1024, kChunk = kGathered ? kBlock : 8 * kBlock,
                kEightRows = kGathered ? kColumns / 64 * kBlock : kBlock;
  const uint32_t piece = thread % 8, row = thread / 8 + 16 * i;
  const uint32_t to = portable::shared_address(tile) + row / 8 * kEightRows + row % 8 * 128 +
                      (piece ^ row % 8) * 16;
  const uint4* source = reinterpret_cast<const uint4*>(from) + max(offset, 0);
  CUTE_UNROLL
  for (int c = 0; c < kColumns / 64; ++c)
    portable::copy_async_or_zero(to + c * kChunk, source + c * 8, offset >= 0);
}

/// The item's keys and values; zeros behind the last key.
template <int DK, int DV, typename T>
CUTE_DEVICE void copy_keys(const SelectedArguments& a, const SelectedWork& w, T* k_tile,
                           T* v_tile) {
  const int64_t first = int64_t(w.item.tile) * 64;
  const T* k = static_cast<const T*>(a.k.data) + w.batch * a.k.batch + w.kv_head * a.k.head +
               first * a.k.token + threadIdx.x % 8 * 8;
  const T* v = static_cast<const T*>(a.v.data) + w.batch * a.v.batch + w.kv_head * a.v.head +
               first * a.v.token + threadIdx.x % 8 * 8;
  uint32_t thread = threadIdx.x % 128;
  asm volatile("" : "+r"(thread));  // or what is the same for every item stays in registers
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int key = static_cast<int>(thread / 8) + 16 * i;
    const bool valid = first + key < a.num_keys;
    copy_row<DK, false>(k_tile, thread, i, k, valid ? key * RowStrides(a.k).token : -1);
    copy_row<DV, false>(v_tile, thread, i, v, valid ? key * RowStrides(a.v).token : -1);
  }
}

/// Row `row` of a stage, for one thread: where its part of kColumns begins (selected/parts.cuh),
/// its mask.
template <int kColumns>
CUTE_DEVICE void describe_row(const SelectedArguments& a, const SelectedWork& w, uint64_t& mask,
                              int32_t& place, uint32_t entry, int in_group, bool valid) {
  const int token = entry >> 8, tile = entry & 127;
  place = portable::kNoPart;
  if (!valid || entry & 128) mask = valid ? ~0ull : 0;
  if (!valid) return;
  if (!(entry & 128))
    copy_async_8(portable::shared_address(&mask),
                 a.row_masks +
                     ((int64_t(w.batch) * a.num_queries + token) * a.num_kv_heads + w.kv_head) *
                         a.max_tiles +
                     tile);
  const int token_of_set = (w.head_index - a.first_head) * a.tokens_of_set + token - a.first_token;
  place = portable::first_of_part((token_of_set * a.max_tiles + tile) * a.group_size + in_group,
                                  kColumns);
}

/// The loop of the 128 threads that gather rows, kTensors of which a row has; `done`: row tiles
/// that went through the ring before, `steps`: those of the item, all that hold its rows. Lanes 0
/// to 15 of a warp have a row of a step each, and lanes 16 to 31 the same rows: offset(of_second,
/// token, in_group) returns where the row begins in the tensor of the lane's half, copy(stage, i,
/// tensor, offset) copies this thread's pieces of its i-th row (zeros when offset < 0), and
/// describe(stage, row, entry, in_group, valid) is called by lanes 0 to 15. Offsets computed by
/// each of a row's eight lanes were the bound of these kernels.
template <int kStages, int kTensors, class Offset, class Copy, class Describe>
CUTE_DEVICE void gather_rows(const SelectedArguments& a, const SelectedWork& w, int done, int steps,
                             uint64_t* full, uint64_t* empty, Offset&& offset, Copy&& copy,
                             Describe&& describe) {
  const int group = a.group_size, rows = w.item.count * group, lane = threadIdx.x % 32;
  const int own = threadIdx.x / 32 * 4 + lane % 4 + lane % 16 / 4 * 16;
  const uint32_t* entries =
      a.entries + int64_t(w.head_index) * a.num_queries * a.max_tiles + w.item.begin;
  const auto pair_of = [&](int row) {
    return group == 1 ? row : static_cast<int>(__umulhi(row, a.group_inverse));
  };
  // Loads return in the order of their issue, behind the copies before them: entries are fetched
  // some steps ahead.
  constexpr int kAhead = 2;
  const auto fetch = [&](int step) {
    return __ldg(entries + pair_of(min(step * 64 + own, rows - 1)));
  };
  uint32_t next[kAhead];
  CUTE_UNROLL
  for (int j = 0; j < kAhead; ++j) next[j] = fetch(j);
  for (int base = 0; base < steps; base += kAhead) {
    CUTE_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      const int step = base + j, row = step * 64 + own;
      const int stage = (done + step) % kStages, cycle = (done + step) / kStages;
      if (step >= steps) return;
      const uint32_t entry = next[j];
      next[j] = fetch(step + kAhead);
      const bool valid = row < rows;
      const int in_group = row - pair_of(row) * group;
      const int from = valid ? offset(lane >= 16, int(entry >> 8), in_group) : -1;
      wait_for(empty[stage], (cycle + 1) & 1);
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        CUTE_UNROLL
        for (int tensor = 0; tensor < kTensors; ++tensor)
          copy(stage, i, tensor, __shfl_sync(~0u, from, tensor * 16 + i * 4 + lane / 8));
      }
      if (lane < 16) describe(stage, own, entry, in_group, valid);
      arrive_with_copies(full[stage]);
    }
  }
}

/// c = a * b over all steps of the inner dimension, or c +=.
template <class Mma, class A, class B, class C>
CUTE_DEVICE void multiply(Mma& mma, const A& a, const B& b, C& c, GMMA::ScaleOut accumulate) {
  mma.accumulate_ = accumulate;
  CUTE_UNROLL
  for (int i = 0; i < size<2>(b); ++i) {
    gemm(mma, a(_, _, i), b(_, _, i), c);
    mma.accumulate_ = GMMA::ScaleOut::One;
  }
}

/// 64 columns of a row of a part in pairs, as the accumulators have them from value `first` on.
template <typename Cuda, class Values>
CUTE_DEVICE void pack_part(uint4 (&pieces)[2], float scale, const Values& values, int first) {
  CUTE_UNROLL
  for (int h = 0; h < 2; ++h) {
    const auto pair = [&](int j) {
      const int i = first + h * 16 + j * 4;
      return portable::pack<Cuda>(values(i) * scale, values(i + 1) * scale);
    };
    pieces[h] = make_uint4(pair(0), pair(1), pair(2), pair(3));
  }
}

/// What pack_part made, in the order of selected/parts.cuh: where a warp's rows are neighbours, it
/// writes 512 bytes at a time. `kOnce`: L2 may let go of them first.
template <bool kOnce = false>
CUTE_DEVICE void store_part(void* parts, int32_t place, int column, const uint4 (&pieces)[2]) {
  // Anew for every 64 columns: kept, it costs a spill at 192/128.
  uint4* const to = piece_anew(static_cast<uint4*>(parts) + threadIdx.x % 4, place);
  CUTE_UNROLL
  for (int h = 0; h < 2; ++h) {
    if (place < 0) continue;
    uint4* const piece = to + column + h * 32;
    if (kOnce) {
      __stcs(piece, pieces[h]);
    } else {
      *piece = pieces[h];
    }
  }
}

}  // namespace nsa::kernels::sm90
