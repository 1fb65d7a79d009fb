// Selected attention, forward, in whole causal tiles of 64 keys under masks, as selected_dense.cuh
// has them, for head dims of 64: a CTA has one tile of three times 64 rows. With groups of 6 that
// was the faster way there: the parts of a group do not fill blocks of 8 rows, and 64 rows have
// four more than whole groups.
//
// Rows whose other tiles went by the order of keys begin with the sum of the parts that it left.
//
// A row is a (token, head of the group) pair, row = token * G + head. A token's tiles are the bits
// of one 64-bit word, read from its ranges. Warpgroup 0 feeds the tiles that any row of the CTA
// attends; the others compute 64 rows each and pass over tiles that none of these attends. Within a
// step the products of the next tile and of this tile's V are in flight while the softmax runs.
//
// Masked values: a row's probability of a masked key is 0, but 0 * NaN is not. A CTA with an output
// that is not finite therefore computes its tiles once more in the same order, with zeros in the
// place of such values, and adds them to the rows that attend them. On finite inputs this never
// happens.
#pragma once
#include "nsa/kernels/selected/sm90/masked_rows.cuh"
#include "nsa/kernels/selected/sm90/selected_dense_wide_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, typename T>
struct SelectedDenseWideKernel : SelectedDenseWideTiles<DK, DV, T> {
  using Tiles = SelectedDenseWideTiles<DK, DV, T>;
  using Tiles::kStages;
  using Tiles::kWarpgroups;
  using typename Tiles::Cuda;
  using typename Tiles::MmaOut;
  using typename Tiles::MmaScores;
  using typename Tiles::Rows;
  using typename Tiles::Shared;
  using typename Tiles::Tile;
  using typename Tiles::Walk;

  /// Scores of one tile -> probabilities relative to the running maximum.
  template <class Scores>
  CUTE_DEVICE static void attend(const DenseWideArguments& a, const Tile& tile, const Rows& rows,
                                 int bit, OnlineSoftmax& softmax, Scores& scores) {
    int columns[2];
    rows.columns(tile, bit, columns);
    attend_columns(columns, a.scale_log2, softmax, scores);
  }

  /// Of the tile where the walk stands; warpgroups with other tiles meet here from another place of
  /// the code, which a named barrier is not for.
  CUTE_DEVICE static void clear_bad_values(Shared& s, const Walk& walk) {
    Tiles::clear_bad_values(s, walk);
    arrive_at(s.cleared);
    wait_for(s.cleared, __popcll(s.all & ((1ull << walk.bit) - 1)) & 1);  // of the tiles before
  }

  /// One warpgroup: 64 rows. `clean`: with zeros for values that are not finite.
  template <class Q, class Out>
  CUTE_DEVICE static void pass(const DenseWideArguments& a, Shared& s, const Tile& tile,
                               const Rows& rows, uint64_t own, bool clean, const Q& frag_q,
                               Walk& walk, OnlineSoftmax& softmax, Out& out) {
    const int lane = threadIdx.x % 32;
    Tensor scores = partition_fragment_C(MmaScores{}, Shape<_64, _64>{});
    // Probabilities as the A operand: the accumulators' order, packed in pairs.
    Tensor probs = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, _4>>{});
    Tensor probs_bits = recast<uint32_t>(probs);

    const auto multiply_scores = [&] {
      wait_for(s.k_full[walk.stage], walk.phase);
      enqueue_scores<Tiles>(s.k[walk.stage], frag_q, scores);
    };
    const auto multiply_out = [&](int stage, uint32_t phase) {
      wait_for(s.v_full[stage], phase);
      enqueue_out<Tiles>(s.v[stage], probs, out);
    };
    const auto finish_out = [&](int stage, int bit) {
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      if (clean) {
        const uint64_t bad = Tiles::word_of_stage(s.bad[stage]);
        int columns[2];
        rows.columns(tile, bit, columns);
        Tiles::add_bad_values(a, tile, bit, bad, columns, out);
      }
      __syncwarp();
      if (lane == 0) arrive_at(s.v_empty[stage]);
    };
    const auto pack = [&] {
      CUTE_UNROLL
      for (int i = 0; i < size(probs_bits); ++i)
        probs_bits(i) = portable::pack<Cuda>(scores(2 * i), scores(2 * i + 1));
    };

    // Runs of own tiles. Within a run V of a tile is held while the scores of the next are
    // computed; between runs nothing is, as the ring may go round until an own tile comes.
    const auto find_run = [&]() -> bool {
      while (walk.next()) {
        if (clean) clear_bad_values(s, walk);
        if (own >> walk.bit & 1) return true;
        wait_for(s.k_full[walk.stage], walk.phase);
        if (lane == 0) arrive_at(s.k_empty[walk.stage]);
        wait_for(s.v_full[walk.stage], walk.phase);
        if (lane == 0) arrive_at(s.v_empty[walk.stage]);
      }
      return false;
    };
    const auto goes_on = [&]() -> bool {
      if ((walk.left & -walk.left & own) == 0) return false;
      walk.next();
      if (clean) clear_bad_values(s, walk);
      return true;
    };

    while (find_run()) {
      multiply_scores();
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      if (lane == 0) arrive_at(s.k_empty[walk.stage]);
      attend(a, tile, rows, walk.bit, softmax, scores);
      rescale_rows(softmax, out);
      pack();
      int bit = walk.bit;  // of the tile whose V is held
      while (goes_on()) {
        const int stage = walk.stage == 0 ? kStages - 1 : walk.stage - 1;
        multiply_scores();
        multiply_out(stage, walk.stage == 0 ? walk.phase ^ 1 : walk.phase);
        warpgroup_wait<1>();
        warpgroup_fence_operand(scores);
        if (lane == 0) arrive_at(s.k_empty[walk.stage]);
        attend(a, tile, rows, walk.bit, softmax, scores);
        finish_out(stage, bit);
        rescale_rows(softmax, out);
        pack();
        bit = walk.bit;
      }
      multiply_out(walk.stage, walk.phase);
      finish_out(walk.stage, bit);
    }
  }

  template <class Out>
  CUTE_DEVICE static void take_parts(const DenseWideArguments& a, const Tile& tile,
                                     const Rows& rows, OnlineSoftmax& softmax, Out& out) {
    int count[2];
    uint32_t first[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int token = rows.row[r] / a.group_size;
      count[r] = token < tile.count
                     ? a.queries.parts.row_counts[Tiles::token_row(a, tile, token, a.num_queries)]
                     : 0;
      first[r] = Tiles::first_part(a, tile, token) + (rows.row[r] - token * a.group_size);
    }
    take_parts_of_rows<DV, Cuda>(a, count, first, softmax, out);
  }

  template <class Out>
  CUTE_DEVICE static void store(const DenseWideArguments& a, Shared& s, const Tile& tile,
                                const Rows& rows, const OnlineSoftmax& softmax, const Out& out) {
    const int lane = threadIdx.x % 32, first_row = __shfl_sync(~0u, rows.row[0], 0);
    const int used_rows = tile.count * a.group_size;
    const auto place = [&](int row) {
      return Tiles::token_row(a, tile, row / a.group_size, a.queries.tokens_of_batch) *
                 a.group_size +
             row % a.group_size;
    };
    float inverse[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const bool ragged = rows.limit[r] > 0 && s.ragged[rows.row[r] / a.group_size] != 0;
      const float sum = ragged ? NAN : softmax.sum[r];
      inverse[r] = sum == 0.f ? 0.f : 1.f / sum;
      if (lane % 4 == 0 && rows.row[r] < used_rows)
        a.lse[place(rows.row[r])] =
            sum == 0.f ? -INFINITY
                       : (softmax.peak[r] * a.scale_log2 + log2f(sum)) * 0.6931471805599453f;
    }
    if (!write_rows<Tiles>(a, s, first_row, used_rows, inverse, place, out)) s.redo = 1;
  }

  CUTE_DEVICE static void consume(const DenseWideArguments& a, Shared& s, const Tile& tile,
                                  int warpgroup) {
    MmaScores mma_scores;
    auto scores_thread = mma_scores.get_thread_slice(threadIdx.x % 128);
    Tensor frag_q =
        scores_thread.partition_fragment_A(make_tensor(make_smem_ptr(s.q), RowTile<T, DK>{}));
    Tensor out = partition_fragment_C(MmaOut{}, Shape<_64, Int<DV>>{});
    const Rows rows(a, s, tile, warpgroup);
    const uint64_t own = Tiles::tiles_of_warpgroup(a, s, tile, warpgroup), all = s.all;
    Walk walk;
    for (bool clean = false;; clean = true) {
      OnlineSoftmax softmax;
      clear(out);
      walk.left = all;
      if (a.queries.parts.parts != nullptr) take_parts(a, tile, rows, softmax, out);
      if (!clean) arrive_at(s.parts_read);  // the warp that prefetches waits for it
      wait_for(s.q_full, clean);            // registers do not hold Q beside parts
      Tiles::read_q(s, warpgroup * 64 + threadIdx.x % 128 / 32 * 16, frag_q);
      pass(a, s, tile, rows, own, clean, frag_q, walk, softmax, out);
      softmax.finish();
      store(a, s, tile, rows, softmax, out);
      if (clean) return;
      cutlass::arch::fence_view_async_shared();  // output in the place of Q -> its next load
      arrive_at(s.stored);                       // the thread that loads waits for it
      cutlass::arch::NamedBarrier::sync(128 * kWarpgroups, 1);
      if (s.redo == 0) return;
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    selected_dense_wide_kernel(const __grid_constant__ DenseWideArguments a) {
#if NSA_CODE_OF_SM90
  NSA_UNALIGNED_SHARED(raw);
  auto& s =
      *reinterpret_cast<typename Kernel::Shared*>(raw + (-portable::shared_address(raw) & 1023));
  const auto tile = Kernel::tile_of(a, blockIdx.x, blockIdx.y);
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.q_full, 1);
    Barrier::init(&s.stored, 128 * Kernel::kWarpgroups);
    Barrier::init(&s.parts_read, 128 * Kernel::kWarpgroups);
    Barrier::init(&s.cleared, 128 * Kernel::kWarpgroups);
    for (int i = 0; i < Kernel::kStages; ++i) {
      Barrier::init(&s.k_full[i], 1);
      Barrier::init(&s.v_full[i], 1);
      Barrier::init(&s.k_empty[i], 4 * Kernel::kWarpgroups);  // a lane of each computing warp
      Barrier::init(&s.v_empty[i], 4 * Kernel::kWarpgroups);
    }
    cutlass::arch::fence_barrier_init();
    Kernel::load_q(a, s, tile);
    s.redo = 0;
    s.all = 0;
  }
  for (int i = threadIdx.x; i < Kernel::kRows; i += Kernel::kThreads) s.tiles[i] = s.ragged[i] = 0;
  __syncthreads();
  Kernel::read_ranges(a, s, tile);
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<Kernel::kProducerRegisters>();
    if (threadIdx.x / 32 == 1 && a.queries.parts.parts != nullptr)
      Kernel::prefetch_parts(a, s, tile);
    if (threadIdx.x > 0) return;
    typename Kernel::Walk walk;
    Kernel::produce(a, s, tile, walk);
    wait_for(s.stored, 0);
    if (s.redo == 0) return;
    Kernel::load_q(a, s, tile);
    Kernel::produce(a, s, tile, walk);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Kernel::kConsumerRegisters>();
    Kernel::consume(a, s, tile, warpgroup - 1);
  }
#endif
}

template <int DK, int DV, typename T>
cudaError_t launch_selected_dense_wide(const RowAttention& p, const DenseQueries& queries,
                                       cudaStream_t stream) {
  using Kernel = SelectedDenseWideKernel<DK, DV, T>;
  DenseWideArguments a{};
  cudaError_t status = describe_masked_tiles<Kernel>(a, p, queries);
  if (status != cudaSuccess) return status;
  const auto kernel = selected_dense_wide_kernel<Kernel>;
  status = count_sms(a.sms);
  if (status != cudaSuccess) return status;
  const dim3 grid((queries.count + a.tokens_of_tile - 1) / a.tokens_of_tile, queries.heads);
  return portable::launch(kernel, grid, Kernel::kThreads, Kernel::kSharedBytes, stream, a);
}

}  // namespace nsa::kernels::sm90
