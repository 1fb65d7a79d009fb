// Selected attention, forward, for rows that attend most of the keys before them: whole causal
// tiles of 64 keys under masks, on wgmma and TMA.
//
// For the first queries these are all tiles; for the others tile 0 and the newest ones, which most
// rows attend: rows begin with the sum of the parts that the order of keys left of their others.
//
// A row is a (token, head of the group) pair, row = token * G + head. A token's tiles are the bits
// of one 64-bit word, read from its ranges. Two CTAs share an SM, so that one reads parts while the
// other computes; each takes tiles of 64 rows one after the other: of its two warpgroups one feeds
// the tiles of keys that any of these rows attends, and before them the rows' parts, through the
// same places of shared memory, already while the tile of rows before is computed. Within a step
// the products of the next tile and of this tile's V are in flight while the softmax runs.
//
// Masked values: a row's probability of a masked key is 0, but 0 * NaN is not. A tile of rows with
// an output that is not finite is therefore computed once more in the end, in the same order, with
// zeros in the place of such values, which are added to the rows that attend them. On finite inputs
// this never happens.
#pragma once
#include "nsa/kernels/selected/sm90/selected_dense_parts.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, typename T>
struct SelectedDenseKernel : SelectedDenseParts<DK, DV, T> {
  using Base = SelectedDenseParts<DK, DV, T>;
  using Base::kStages;
  using typename Base::Cuda;
  using typename Base::MmaOut;
  using typename Base::MmaScores;
  using typename Base::Rows;
  using typename Base::Shared;
  using typename Base::Tile;
  using typename Base::Walk;
  using typename Base::Words;
  using typename Base::WorkQueue;

  /// Scores of one tile -> probabilities relative to the running maximum.
  template <class Scores>
  CUTE_DEVICE static void attend(const DenseArguments& a, const Shared& s, const Rows& rows,
                                 int bit, OnlineSoftmax& softmax, Scores& scores) {
    int columns[2];
    rows.columns(s, bit, columns);
    attend_columns(columns, a.scale_log2, softmax, scores);
  }

  template <class Out>
  CUTE_DEVICE static void add_bad_values(const DenseArguments& a, const Shared& s,
                                         const WorkQueue& at, const Rows& rows, int stage,
                                         Out& out) {
    const uint64_t bad = Base::word_of_stage(s.bad[stage]);
    if (bad == 0) return;
    const int bit = Base::word_of_stage(s.bit[stage]);
    const Tile tile = at.tile(a);
    int columns[2];
    rows.columns(s, bit, columns);
    Base::add_bad_values(a, tile, bit, bad, columns, out);
  }

  /// The tiles of walk.left.
  template <class Q, class Out>
  CUTE_DEVICE static void pass(const DenseArguments& a, Shared& s, const WorkQueue& at,
                               const Rows& rows, const Q& frag_q, Walk& walk,
                               OnlineSoftmax& softmax, Out& out) {
    const int lane = threadIdx.x % 32;
    Tensor scores = partition_fragment_C(MmaScores{}, Shape<_64, _64>{});
    // Probabilities as the A operand: the accumulators' order, packed in pairs.
    Tensor probs = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, _4>>{});
    Tensor probs_bits = recast<uint32_t>(probs);

    const auto multiply_scores = [&] {
      wait_for(s.k_full[walk.stage], walk.phase);
      enqueue_scores<Base>(s.k[walk.stage], frag_q, scores);
    };
    const auto multiply_out = [&](int stage, uint32_t phase) {
      wait_for(s.v_full[stage], phase);
      enqueue_out<Base>(s.v[stage], probs, out);
    };
    const auto finish_out = [&](int stage) {
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      if (at.clean) add_bad_values(a, s, at, rows, stage, out);
      __syncwarp();
      if (lane == 0) arrive_at(s.v_empty[stage]);
    };
    const auto pack = [&] {
      CUTE_UNROLL
      for (int i = 0; i < size(probs_bits); ++i)
        probs_bits(i) = portable::pack<Cuda>(scores(2 * i), scores(2 * i + 1));
    };

    const auto goes_on = [&]() -> bool {
      if (!walk.next()) return false;
      if (at.clean) {
        Base::clear_bad_values(s, walk);
        cutlass::arch::NamedBarrier::sync(Base::kComputing, 1);
      }
      return true;
    };

    if (!goes_on()) return;
    multiply_scores();
    warpgroup_wait<0>();
    warpgroup_fence_operand(scores);
    if (lane == 0) arrive_at(s.k_empty[walk.stage]);
    attend(a, s, rows, walk.bit, softmax, scores);
    rescale_rows(softmax, out);
    pack();
    while (goes_on()) {
      const int stage = walk.stage == 0 ? kStages - 1 : walk.stage - 1;
      multiply_scores();
      multiply_out(stage, walk.stage == 0 ? walk.phase ^ 1 : walk.phase);
      warpgroup_wait<1>();
      warpgroup_fence_operand(scores);
      if (lane == 0) arrive_at(s.k_empty[walk.stage]);
      attend(a, s, rows, walk.bit, softmax, scores);
      finish_out(stage);
      rescale_rows(softmax, out);
      pack();
    }
    multiply_out(walk.stage, walk.phase);
    finish_out(walk.stage);
  }

  /// Whether the output is finite.
  template <class Out>
  CUTE_DEVICE static bool store(const DenseArguments& a, Shared& s, const WorkQueue& at,
                                const Rows& rows, const OnlineSoftmax& softmax, const Out& out) {
    const Tile tile = at.tile(a);
    const int lane = threadIdx.x % 32, first_row = threadIdx.x % 128 / 32 * 16;
    const int used_rows = tile.count * a.group_size;
    const auto place = [&](int row) {
      return Base::token_row(a, tile, row / a.group_size, a.queries.tokens_of_batch) *
                 a.group_size +
             row % a.group_size;
    };
    float inverse[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float sum = rows.word(s, r).ragged != 0 ? NAN : softmax.sum[r];
      inverse[r] = sum == 0.f ? 0.f : 1.f / sum;
      if (lane % 4 == 0 && Rows::row(r) < used_rows)
        a.lse[place(Rows::row(r))] =
            sum == 0.f ? -INFINITY
                       : (softmax.peak[r] * a.scale_log2 + log2f(sum)) * 0.6931471805599453f;
    }
    return write_rows<Base>(a, s, first_row, used_rows, inverse, place, out);
  }

  CUTE_DEVICE static void consume(const DenseArguments& a, Shared& s) {
    MmaScores mma_scores;
    auto scores_thread = mma_scores.get_thread_slice(threadIdx.x % 128);
    Tensor frag_q =
        scores_thread.partition_fragment_A(make_tensor(make_smem_ptr(s.q), RowTile<T, DK>{}));
    Tensor out = partition_fragment_C(MmaOut{}, Shape<_64, Int<DV>>{});
    Walk walk;
    for (WorkQueue at; at.template next<true>(a, s);) {
      wait_for(s.words_full[at.words()], at.words_phase());
      const Words& words = s.words[at.words()];
      const Rows rows(a, at);
      OnlineSoftmax softmax;
      clear(out);
      if (a.streamed) {
        Base::take_streamed(a, s, words.most, rows, walk, softmax, out);
      } else if (a.queries.parts.parts != nullptr) {
        Base::take_parts(a, s, at.tile(a), rows, softmax, out);
      }
      walk.left = words.all;
      wait_for(s.q_full, at.slot & 1);  // registers do not hold Q beside parts
      Base::read_q(s, threadIdx.x % 128 / 32 * 16, frag_q);
      pass(a, s, at, rows, frag_q, walk, softmax, out);
      softmax.finish();
      const bool finite = store(a, s, at, rows, softmax, out);
      if (!finite && !at.clean) atomicOr(&s.redo, 1u << at.round % 32);
      arrive_at(s.words_empty[at.words()]);
      cutlass::arch::fence_view_async_shared();  // output in the place of Q -> its next load
      arrive_at(s.q_empty);
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kCtas)
    selected_dense_kernel(const __grid_constant__ DenseArguments a) {
#if NSA_CODE_OF_SM90
  NSA_UNALIGNED_SHARED(raw);
  auto& s =
      *reinterpret_cast<typename Kernel::Shared*>(raw + (-portable::shared_address(raw) & 1023));
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.q_full, 1);
    Barrier::init(&s.q_empty, Kernel::kComputing);
    Barrier::init(&s.finished, Kernel::kComputing);
    for (int i = 0; i < 2; ++i) {
      Barrier::init(&s.words_full[i], 96);
      Barrier::init(&s.words_empty[i], Kernel::kComputing + 32);
    }
    for (int i = 0; i < Kernel::kStages; ++i) {
      Barrier::init(&s.k_full[i], 1);
      Barrier::init(&s.v_full[i], 1);
      Barrier::init(&s.k_empty[i], Kernel::kComputing / 32);  // a lane of each computing warp
      Barrier::init(&s.v_empty[i], Kernel::kComputing / 32);
    }
    cutlass::arch::fence_barrier_init();
    s.redo = 0;
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    cutlass::arch::warpgroup_reg_dealloc<Kernel::kProducerRegisters>();
    if (threadIdx.x < 32) {
      Kernel::produce(a, s);
    } else {
      Kernel::produce_words(a, s);
    }
  } else {
    cutlass::arch::warpgroup_reg_alloc<Kernel::kConsumerRegisters>();
    Kernel::consume(a, s);
  }
#endif
}

template <int DK, int DV, typename T>
cudaError_t launch_selected_dense(const RowAttention& p, const DenseQueries& queries,
                                  cudaStream_t stream) {
  using Kernel = SelectedDenseKernel<DK, DV, T>;
  DenseArguments a{};
  cudaError_t status = describe_masked_tiles<Kernel>(a, p, queries);
  if (status != cudaSuccess) return status;
  a.tiles_of_head = (queries.count + a.tokens_of_tile - 1) / a.tokens_of_tile;
  const int64_t units = int64_t{a.tiles_of_head} * queries.heads;
  if (units > INT32_MAX) return cudaErrorInvalidValue;
  a.units = static_cast<int>(units);
  const DenseParts& parts = queries.parts;
  a.streamed = parts.parts != nullptr &&
               (a.group_size % 8 == 0 || (a.group_size == 4 && parts.max_tiles % 2 == 0));
  const auto kernel = selected_dense_kernel<Kernel>;
  int sms = 0;
  status = count_sms(sms);
  if (status != cudaSuccess) return status;
  // Or the L1 cache may leave room for one CTA.
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  if (status != cudaSuccess) return status;
  return portable::launch(kernel, std::min(a.units, Kernel::kCtas * sms), Kernel::kThreads,
                          Kernel::kSharedBytes, stream, a);
}

}  // namespace nsa::kernels::sm90
