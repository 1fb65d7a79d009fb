// d_q of interval attention: a CTA computes it for 64 rows of one KV head. Rows of the products are
// rows: s = q k^T and dp = d_out v^T of a tile of keys, then d_q += ds k with ds in registers.
#pragma once
#include "nsa/kernels/interval/sm80/gradient_tiles.cuh"

namespace nsa::kernels::sm80 {

template <class Tiles>
struct QueryGradients {
  using T = typename Tiles::Type;
  using Shared = typename Tiles::Shared;
  using Products = typename Tiles::Products;
  using Weights = typename Tiles::Weights;
  static constexpr int DK = Tiles::kQkHeadDim, DV = Tiles::kVHeadDim, kRows = Tiles::kOwn,
                       kKeys = Tiles::kPassing, kStages = Tiles::kStages;

  /// What a CTA does: rows from `first_row` on, and the keys [begin, end) that any of them attends.
  struct Work {
    int batch, kv_head, first_row, begin, end;
  };
  __device__ static sm90::Span keys_of_row(const BackwardArguments& a, int row) {
    const int token = a.by_group.quotient(min(row, a.rows - 1));
    return sm90::keys_of(a.forward.rule, a.forward.first_position + token, a.forward.num_keys,
                         a.by_stride);
  }
  /// The last tiles first: they attend the most keys.
  __device__ static Work work_of(const BackwardArguments& a, int unit) {
    const int head = unit / a.q_tiles;
    Work work;
    work.kv_head = head % a.forward.num_kv_heads;
    work.batch = head / a.forward.num_kv_heads;
    work.first_row = (a.q_tiles - 1 - unit % a.q_tiles) * kRows;
    work.begin = keys_of_row(a, work.first_row).begin;
    work.end = keys_of_row(a, work.first_row + kRows - 1).end;
    return work;
  }

  /// The two rows of a thread.
  struct OwnRows {
    float lse[2], delta[2];
    sm90::Span keys[2];
    __device__ OwnRows(const BackwardArguments& a, const HeadTensors<T>& head, int first) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = min(first + 8 * r, a.rows - 1);
        lse[r] = a.plan.lse[head.first_row + row], delta[r] = a.plan.delta[head.first_row + row];
        keys[r] = keys_of_row(a, row);
      }
    }
    __device__ bool attended(int r, int key) const {
      return key >= keys[r].begin && key < keys[r].end;
    }
    /// Whether some pair (every pair) of a tile of keys may be (is) attended.
    __device__ bool any(int first_key) const {
      return first_key + kKeys > keys[0].begin && first_key < keys[1].end;
    }
    __device__ bool all(int first_key) const {
      return first_key >= keys[1].begin && first_key + kKeys <= keys[0].end;
    }
  };

  __device__ static void run(const BackwardArguments& a, Shared& s, int unit) {
    const Work work = work_of(a, unit);
    const HeadTensors<T> head(a, work.batch, work.kv_head);
    const int lane = threadIdx.x % 32, own_row = threadIdx.x / 32 * 16;
    const int steps = max(0, work.end - work.begin + kKeys - 1) / kKeys;

    const auto fetch_keys = [&](int step) {
      const int first = work.begin + step * kKeys, stage = step % kStages;
      Tiles::template copy_rows<kKeys>(
          s.x[stage], s.y[stage], [&](int i) { return head.key(first + i, first + i < work.end); });
    };
    if (steps > 0) {
      Tiles::template copy_rows<kRows>(s.own_x, s.own_y, [&](int i) {
        return head.row(work.first_row + i, work.first_row + i < a.rows);
      });
    }
    for (int step = 0; step < kStages - 1; ++step) {
      if (step < steps) fetch_keys(step);
      commit_copies();
    }

    const OwnRows rows(a, head, work.first_row + own_row + lane / 4);
    float d_q[DK / 8][4] = {};
    for (int step = 0; step < steps; ++step) {
      wait_copies<kStages - 2>();
      __syncthreads();  // the step's keys are there, and all threads are done with those before
      const int ahead = step + kStages - 1, stage = step % kStages, key = work.begin + step * kKeys;
      if (ahead < steps) fetch_keys(ahead);
      commit_copies();
      if (!__any_sync(~0u, rows.any(key))) continue;
      Products p, ds;
      Tiles::template multiply<DK>(p, s.own_x, own_row, s.x[stage]);
      Tiles::template multiply<DV>(ds, s.own_y, own_row, s.y[stage]);
      if (__all_sync(~0u, rows.all(key))) {
        differentiate<false>(a, rows, key, p, ds);
      } else {
        differentiate<true>(a, rows, key, p, ds);
      }
      Weights weights;
      Tiles::pack_weights(weights, ds);
      Tiles::template accumulate<DK>(d_q, weights, s.x[stage]);
    }
    store(a, work, d_q);
  }

  /// ds from s and dp; 0 where a pair is not attended.
  template <bool kMasked>
  __device__ static void differentiate(const BackwardArguments& a, const OwnRows& rows,
                                       int first_key, const Products& s, Products& ds) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2, key = first_key + n * 8 + threadIdx.x % 4 * 2 + i % 2;
        const float p = fast_exp2(fmaf(s[n][i], a.scale_log2, -rows.lse[r]));
        ds[n][i] = p * (ds[n][i] - rows.delta[r]);
        if (kMasked && !rows.attended(r, key)) ds[n][i] = 0.f;
      }
  }

  __device__ static void store(const BackwardArguments& a, const Work& work,
                               const float (&d_q)[DK / 8][4]) {
    const IntervalAttention& f = a.forward;
    const auto target = [&](int row_of_warp) -> T* {
      const int row = work.first_row + threadIdx.x / 32 * 16 + row_of_warp;
      if (row >= a.rows) return nullptr;
      const int token = a.by_group.quotient(row);
      const int64_t place = (int64_t(work.batch) * f.num_queries + token) * f.num_heads +
                            work.kv_head * a.group + row - token * a.group;
      return static_cast<T*>(a.d_q) + place * DK;
    };
    if (!Tiles::template store<DK>(d_q, f.scale, target, a.adds)) *a.plan.bad = 1;
  }
};

}  // namespace nsa::kernels::sm80
