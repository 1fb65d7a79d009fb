// Selected attention, backward, in the order of keys, on mma.sync.
//
// A block of threads holds the 64 keys and values of an item's tile; the rows that attend the tile
// pass by in tiles of 64, gathered by cp.async some steps ahead. A row is a (token, head of the
// group) pair, row = pair of the list * G + head, so any group size fills the tiles. Of 64 keys x
// 64 rows each of the eight warps computes 16 x 32:
//   S^T = K Q^T, P^T = exp2(S^T - lse), dP^T = V dO^T, dS^T = P^T (dP^T - delta);
// both go to shared memory, rounded, and then each warp has 16 keys and every other 32 columns of
//   dV += P^T dO, dK += dS^T Q
// in registers, and 16 rows and such columns of dQ = dS K, which goes to memory as one part of the
// rows' d_q. Two barriers a step.
//
// Values that are not finite: probabilities of what a row does not attend are selected away, but
// 0 * NaN is NaN in the products over keys or rows. Keys, values and rows with such a value are
// therefore replaced by zeros in shared memory, and what attends them gets its NaN by selection.
#pragma once
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/selected/parts.cuh"
#include "nsa/kernels/selected/selected_work.cuh"
#include "nsa/kernels/selected/sm80/selected_backward_launch.h"
#include "nsa/kernels/selected/sm80/tile_products.cuh"

namespace nsa::kernels::sm80 {

/// 8 values, of which one is not finite.
template <typename T>
__device__ __forceinline__ bool not_finite(const uint4& x) {
  constexpr uint32_t kLow = std::is_same_v<T, __half> ? 0x7c00 : 0x7f80, kHigh = kLow << 16;
  bool bad = false;
  for (const uint32_t pair : {x.x, x.y, x.z, x.w})
    bad |= (pair & kLow) == kLow || (pair & kHigh) == kHigh;
  return bad;
}

template <int DK, int DV, typename T>
struct SelectedBackwardKernel {
  static constexpr int kThreads = 256, kWarps = 8;
  // Of row tiles: 160 KB, the shared memory of an SM of sm_80, hold that many.
  static constexpr int kStages = DK + DV == 256 ? 3 : DK + DV > 384 ? 1 : 2;
  static constexpr int kAhead = kStages > 1 ? kStages - 2 : 0;  // copies that a step does not await
  static constexpr int kBlocksOfSm = DK + DV == 128 ? 2 : 1;
  static constexpr int kUnitsOfKey = DK / 64, kUnitsOfValue = DV / 64;  // of 32 columns, of a warp

  /// What a step reads of its rows.
  struct Rows {
    T q[64 * DK];
    T d_out[64 * DV];
    float2 stats[64];
    uint64_t masks[64];
    int32_t places[64];  // where a row's part of d_q goes (parts.cuh)
  };
  struct Shared {
    T k[64 * DK];
    T v[64 * DV];
    T probs[64 * 64], d_scores[64 * 64];  // [key][row]
    alignas(128) Rows rows[kStages];
    uint32_t bad_k[kWarps], bad_v[kWarps];  // of 8 keys: those with a value that is not finite
  };
  static constexpr int kSharedBytes = sizeof(Shared);
  static_assert(kSharedBytes * kBlocksOfSm + 1024 * (kBlocksOfSm - 1) <= 163840);

  const SelectedArguments& a;
  Shared& s;
  const SelectedWork& w;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int strip = warp % 4, half = warp / 4 % 2;  // 16 keys or rows; which columns, or 32 rows
  uint32_t bad_keys = 0, bad_values = 0;            // bits 0 and 1: of this thread's two keys

  __device__ __forceinline__ SelectedBackwardKernel(const SelectedArguments& arguments,
                                                    Shared& shared, const SelectedWork& work)
      : a(arguments), s(shared), w(work) {}

  /// A warp copies eight rows of kColumns, 128 bytes at a time; `offset`: in 16 bytes, of the row
  /// that lane `first` + row % 8 has, below 0 zeros.
  template <int kColumns>
  __device__ __forceinline__ void copy_rows(T* tile, const T* from, int offset, int first) const {
    const uint32_t to = shared_address(tile);
    const int piece = lane % 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = i * 4 + lane / 8, own = __shfl_sync(~0u, offset, first + row);
      const uint4* source = reinterpret_cast<const uint4*>(from) + max(own, 0) + piece;
#pragma unroll
      for (int c = 0; c < kColumns / 64; ++c)
        copy_async_or_zero(to + piece_of_tile<kColumns>(warp * 8 + row, c * 8 + piece),
                           source + c * 8, own >= 0);
    }
  }

  /// The item's keys and values; zeros behind the last key.
  __device__ __forceinline__ void copy_keys() const {
    const int64_t first = int64_t(w.item.tile) * 64;
    const int key = warp * 8 + lane % 8;
    const bool valid = first + key < a.num_keys;
    const auto copy = [&](auto columns, T* tile, const Strided& x) {
      copy_rows<columns.value>(
          tile,
          static_cast<const T*>(x.data) + w.batch * x.batch + w.kv_head * x.head + first * x.token,
          valid ? static_cast<int>(key * x.token / 8) : -1, 0);
    };
    copy(std::integral_constant<int, DK>{}, s.k, a.k);
    copy(std::integral_constant<int, DV>{}, s.v, a.v);
  }

  /// The list's entry of row lane % 8 of this warp's rows of a step.
  __device__ __forceinline__ uint32_t fetch_entry(int step) const {
    const int row = min(step * 64 + warp * 8 + lane % 8, w.item.count * a.group_size - 1);
    return a
        .entries[int64_t(w.head_index) * a.num_queries * a.max_tiles + w.item.begin + pair_of(row)];
  }
  __device__ __forceinline__ int pair_of(int row) const {
    return a.group_size == 1 ? row : static_cast<int>(uint64_t(row) * a.group_inverse >> 32);
  }

  /// Row lane % 8 of this warp's: its mask, its statistics and where its part of d_q goes.
  __device__ __forceinline__ void describe_row(Rows& rows, uint32_t entry, int in_group,
                                               bool valid) const {
    const int own = warp * 8 + lane, token = entry >> 8, tile = entry & 127;
    rows.places[own] = kNoPart;
    if (!valid || entry & 128) rows.masks[own] = valid ? ~0ull : 0;
    if (!valid) {
      rows.stats[own] = make_float2(0.f, 0.f);
      return;
    }
    if (!(entry & 128))
      copy_async_8(shared_address(&rows.masks[own]),
                   a.row_masks +
                       ((int64_t(w.batch) * a.num_queries + token) * a.num_kv_heads + w.kv_head) *
                           a.max_tiles +
                       tile);
    const int head = w.kv_head * a.group_size + in_group;
    copy_async_8(shared_address(&rows.stats[own]),
                 a.stats + (int64_t(w.batch) * a.tokens_of_batch + token) * a.num_heads + head);
    const int token_of_set =
        (w.head_index - a.first_head) * a.tokens_of_set + token - a.first_token;
    rows.places[own] =
        first_of_part((token_of_set * a.max_tiles + tile) * a.group_size + in_group, DK);
  }

  /// Rows of a step; `entry` as fetch_entry gave it.
  __device__ __forceinline__ void gather_rows(int step, uint32_t entry) const {
    Rows& rows = s.rows[step % kStages];
    const int row = step * 64 + warp * 8 + lane % 8, token = entry >> 8;
    const bool valid = row < w.item.count * a.group_size;
    const int in_group = row - pair_of(row) * a.group_size;
    // Lanes 0 to 7 know where rows of Q begin, lanes 8 to 15 where those of d_out do.
    const Strided& own = lane % 16 < 8 ? a.q : a.d_out;
    const int offset =
        valid ? token * static_cast<int>(own.token / 8) + in_group * static_cast<int>(own.head / 8)
              : -1;
    const auto first_row = [&](const Strided& x) {
      return static_cast<const T*>(x.data) + w.batch * x.batch + w.kv_head * a.group_size * x.head;
    };
    copy_rows<DK>(rows.q, first_row(a.q), offset, 0);
    copy_rows<DV>(rows.d_out, first_row(a.d_out), offset, 8);
    if (lane < 8) describe_row(rows, entry, in_group, valid);
  }

  /// Zeros in the place of keys and values that are not finite.
  __device__ __forceinline__ void clear_bad_keys() {
    const int key = threadIdx.x / 4, quarter = threadIdx.x % 4;
    const auto clear = [&](auto columns, T* tile, uint32_t (&bad_of_warp)[kWarps]) {
      constexpr int kColumns = columns.value;
      const auto piece = [&](int i) -> uint4& {
        return *reinterpret_cast<uint4*>(reinterpret_cast<char*>(tile) +
                                         piece_of_tile<kColumns>(key, i));
      };
      bool bad = false;
      for (int i = quarter; i < kColumns / 8; i += 4) bad |= not_finite<T>(piece(i));
      const uint32_t lanes = __ballot_sync(~0u, bad);
      if (lanes >> (lane & ~3) & 15)
        for (int i = quarter; i < kColumns / 8; i += 4) piece(i) = make_uint4(0, 0, 0, 0);
      uint32_t keys = 0;
      for (int i = 0; i < 8; ++i) keys |= (lanes >> (4 * i) & 15) != 0 ? 1u << i : 0u;
      if (lane == 0) bad_of_warp[warp] = keys;
    };
    clear(std::integral_constant<int, DK>{}, s.k, s.bad_k);
    clear(std::integral_constant<int, DV>{}, s.v, s.bad_v);
    __syncthreads();
    const auto own_bits = [&](const uint32_t (&bad)[kWarps]) {
      return (bad[strip * 2] >> (lane / 4) & 1) | (bad[strip * 2 + 1] >> (lane / 4) & 1) << 1;
    };
    bad_keys = own_bits(s.bad_k);
    bad_values = own_bits(s.bad_v);
  }

  /// Writes zeros in the place of rows whose statistics are NaN.
  __device__ __forceinline__ void clear_bad_rows(Rows& rows) const {
    const int row = threadIdx.x / 4;
    const auto clear = [&](T* tile, int columns) {
      for (int i = threadIdx.x % 4; i < columns / 8; i += 4)
        *reinterpret_cast<uint4*>(tile + row * columns + i * 8) = make_uint4(0, 0, 0, 0);
    };
    if (!isnan(rows.stats[row].x)) return;
    clear(rows.q, DK);
    clear(rows.d_out, DV);
  }

  /// Bit 4 j + i: whether the pair of value i of accumulator tile j is attended.
  __device__ __forceinline__ uint32_t attended_pairs(const Rows& rows) const {
    uint32_t attended = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int row = half * 32 + j / 2 * 8 + lane % 4 * 2 + j % 2;
      const uint64_t mask = rows.masks[row] >> (strip * 16 + lane / 4);
      attended |= static_cast<uint32_t>(mask & 1) << (j / 2 * 4 + j % 2);
      attended |= static_cast<uint32_t>(mask >> 8 & 1) << (j / 2 * 4 + j % 2 + 2);
    }
    return attended;
  }

  /// 0 where a pair is not attended, NaN where one is whose key is bad.
  __device__ __forceinline__ static void select(Accumulators<4>& values, uint32_t attended,
                                                uint32_t bad) {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      if (!(attended >> i & 1)) values[i / 4][i % 4] = 0.f;
    if (bad == 0) return;
#pragma unroll
    for (int i = 0; i < 16; ++i)
      if ((attended >> i & 1) && (bad >> (i % 4 / 2) & 1)) values[i / 4][i % 4] = NAN;
  }

  /// This thread's values of 16 keys x 32 rows, rounded, to a tile [key][row].
  __device__ __forceinline__ void store_pairs(T* tile, const Accumulators<4>& values) const {
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int key = strip * 16 + lane / 4 + 8 * r;
        char* to = reinterpret_cast<char*>(tile) + piece_of_tile<64>(key, half * 4 + j);
        reinterpret_cast<uint32_t*>(to)[lane % 4] = pack<T>(values[j][2 * r], values[j][2 * r + 1]);
      }
  }

  /// P^T and dS^T of a step's rows.
  __device__ __forceinline__ void pair_gradients(const Rows& rows) const {
    const bool whole = __all_sync(~0u, (rows.masks[lane] & rows.masks[lane + 32]) == ~0ull);
    const uint32_t attended = whole ? 0xffffu : attended_pairs(rows);
    Accumulators<4> probs = {}, d_scores = {};
    multiply_rows<DK, T>(probs, shared_address(s.k), strip * 16, shared_address(rows.q), half * 32);
    multiply_rows<DV, T>(d_scores, shared_address(s.v), strip * 16, shared_address(rows.d_out),
                         half * 32);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = half * 32 + j * 8 + lane % 4 * 2;
      const float2 stats[2] = {rows.stats[row], rows.stats[row + 1]};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        probs[j][i] = fast_exp2(fmaf(probs[j][i], a.scale_log2, -stats[i % 2].x));
        d_scores[j][i] = probs[j][i] * (d_scores[j][i] - stats[i % 2].y);
      }
    }
    if (attended != 0xffffu || (bad_keys | bad_values) != 0) {
      select(probs, attended, bad_keys);
      select(d_scores, attended, bad_keys | bad_values);
    }
    store_pairs(s.probs, probs);
    store_pairs(s.d_scores, d_scores);
  }

  /// 32 columns of this warp's 16 rows of d_q as parts: quads whose rows are neighbours write
  /// lines.
  __device__ __forceinline__ void store_part(const Accumulators<4>& d_q, const int32_t (&places)[2],
                                             int unit) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        pairs[j] = pack<T>(d_q[j][2 * r] * a.scale, d_q[j][2 * r + 1] * a.scale);
      if (places[r] >= 0)
        static_cast<uint4*>(a.parts)[int64_t(places[r]) + unit * 32 + lane % 4] =
            make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }

  __device__ __forceinline__ void query_gradients(const Rows& rows) const {
    RowOperand d_scores;
    load_columns(d_scores, shared_address(s.d_scores), strip * 16);
    const int32_t places[2] = {rows.places[strip * 16 + lane / 4],
                               rows.places[strip * 16 + lane / 4 + 8]};
#pragma unroll
    for (int u = 0; u < kUnitsOfKey; ++u) {
      Accumulators<4> d_q = {};
      multiply_columns<DK, T>(d_q, d_scores, shared_address(s.k), u * 8 + half * 4);
      store_part(d_q, places, u * 2 + half);
    }
  }

  /// sums += a b for the warp's 16 rows of a, a tile [key][row], and its columns of b.
  template <int kColumns>
  __device__ __forceinline__ void add_products(Accumulators<4> (&sums)[kColumns / 64],
                                               const T* pairs, const T* b) const {
    RowOperand operand;
    load_rows(operand, shared_address(pairs), strip * 16);
#pragma unroll
    for (int u = 0; u < kColumns / 64; ++u)
      multiply_columns<kColumns, T>(sums[u], operand, shared_address(b), u * 8 + half * 4);
  }

  /// A slot has the order of accumulators of 128 threads: value i of thread t stands at i * 128 + t
  /// (selected_sums.cu).
  template <int kUnits>
  __device__ __forceinline__ void store_slot(float* slot, const Accumulators<4> (&sums)[kUnits],
                                             float factor) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 16; ++i)
        slot[((u * 2 + half) * 16 + i) * 128 + strip * 32 + lane] = sums[u][i / 4][i % 4] * factor;
  }

  __device__ __forceinline__ void run() {
    const int steps = w.steps(a);
    Accumulators<4> d_k[kUnitsOfKey] = {}, d_v[kUnitsOfValue] = {};
    copy_keys();
    if constexpr (kStages == 1) commit_copies();
    // An empty group keeps the count of groups.
#pragma unroll
    for (int step = 0; step < kStages - 1; ++step) {
      if (step < steps) gather_rows(step, fetch_entry(step));
      commit_copies();
    }
    wait_copies<kAhead>();
    __syncthreads();
    clear_bad_keys();
    uint32_t entry = fetch_entry(kStages - 1);
    for (int step = 0; step < steps; ++step) {
      if constexpr (kStages > 1) wait_copies<kAhead>();
      __syncthreads();  // the step's rows are there, and all threads are done with the last step
      if (step + kStages - 1 < steps) gather_rows(step + kStages - 1, entry);
      commit_copies();
      entry = fetch_entry(step + kStages);
      if constexpr (kStages == 1) {  // one place of rows: they come only now
        wait_copies<0>();
        __syncthreads();
      }
      Rows& rows = s.rows[step % kStages];
      if (__any_sync(~0u, isnan(rows.stats[lane].x) || isnan(rows.stats[lane + 32].x))) {
        clear_bad_rows(rows);
        __syncthreads();  // every warp sees the same rows and comes here
      }
      pair_gradients(rows);
      __syncthreads();
      add_products<DV>(d_v, s.probs, rows.d_out);
      add_products<DK>(d_k, s.d_scores, rows.q);
      query_gradients(rows);
    }
    float* slot = a.slots + (int64_t(w.head_index - a.first_head) * a.items_of_head + w.item.slot) *
                                (64 * (DK + DV));
    store_slot(slot, d_k, a.scale);
    store_slot(slot + 64 * DK, d_v, 1.f);
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocksOfSm)
    selected_backward_kernel(const __grid_constant__ SelectedArguments a) {
  SelectedWork w;
  if (!w.find(a)) return;
  Kernel(a, *reinterpret_cast<typename Kernel::Shared*>(dynamic_shared()), w).run();
}

/// One block of threads an item; those behind a head's last item return at once.
template <int DK, int DV, typename T>
cudaError_t launch_selected_backward(const SelectedBackward& p, int tokens_of_batch,
                                     const SelectedPlan& plan, void* workspace, int set,
                                     cudaStream_t stream) {
  using Kernel = SelectedBackwardKernel<DK, DV, T>;
  SelectedArguments a = selected_arguments(p, plan, workspace, set);
  a.d_out = p.d_out;
  a.stats = reinterpret_cast<const float2*>(p.stats);
  a.tokens_of_batch = tokens_of_batch;
  return launch(selected_backward_kernel<Kernel>, dim3(plan.items_of_head, a.heads),
                Kernel::kThreads, Kernel::kSharedBytes, stream, a);
}

}  // namespace nsa::kernels::sm80
