// d_k and d_v of interval attention: a CTA sums them of 64 keys of one KV head over a run of rows,
// all heads of the group among them. Keys are the rows of the products: s^T = k q^T and dp^T = v
// d_out^T, then d_v += p^T d_out and d_k += ds^T q with p and ds in registers. Rows come in the
// order of interval/sm90/key_gradients.cuh.
#pragma once
#include "nsa/kernels/interval/sm80/gradient_tiles.cuh"

namespace nsa::kernels::sm80 {

template <class Tiles>
struct KeyGradients {
  using T = typename Tiles::Type;
  using Shared = typename Tiles::Shared;
  using Products = typename Tiles::Products;
  using Weights = typename Tiles::Weights;
  static constexpr int DK = Tiles::kQkHeadDim, DV = Tiles::kVHeadDim, kKeys = Tiles::kOwn,
                       kRows = Tiles::kPassing, kStages = Tiles::kStages;
  /// CTAs that share the columns of a key tile's sums, where registers do not hold all of them.
  /// Each of them computes the probabilities.
  static constexpr int kParts = DK + DV > 384 ? 2 : 1;
  static constexpr int kKeyColumns = DK / kParts, kValueColumns = DV / kParts;
  static_assert(kKeyColumns % 64 == 0 && kValueColumns % 64 == 0);  // whole swizzled pieces

  /// What a CTA does: rows [begin, end) for its keys; none: end = begin.
  struct Work {
    int batch, kv_head, chunk, first_key, begin, end, part;
    bool wanted;  // the sums are read
  };
  /// Chunk slowest, key tile fastest: tiles that read the same rows run together. Chunks are those
  /// of the plan's key tiles, which are longer than a CTA's.
  __device__ static Work work_of(const BackwardArguments& a, int unit) {
    const IntervalAttention& f = a.forward;
    const int of_part = unit % kParts;
    unit /= kParts;
    const int heads = f.batch * f.num_kv_heads, head = unit / a.key_tiles % heads;
    Work work;
    work.part = of_part;
    work.first_key = unit % a.key_tiles * kKeys;
    work.kv_head = head % f.num_kv_heads;
    work.batch = head / f.num_kv_heads;
    work.chunk = unit / a.key_tiles / heads;
    const int first = work.first_key / sm90::kKeysOfTile * sm90::kKeysOfTile;
    const sm90::Span all = sm90::queries_of(f, first, min(first + sm90::kKeysOfTile, f.num_keys)),
                     own = sm90::queries_of(f, work.first_key,
                                            min(work.first_key + kKeys, f.num_keys));
    const int end = all.end - work.chunk * a.plan.chunk_tokens,
              begin = max(all.begin, end - a.plan.chunk_tokens);
    work.wanted = a.plan.num_chunks == 1 || end > all.begin;
    work.begin = max(begin, own.begin) * a.group;
    work.end = max(work.begin, min(end, own.end) * a.group);
    return work;
  }

  /// Rows [begin, end) of the work that attend a key.
  __device__ static sm90::Span rows_of(const BackwardArguments& a, const Work& work, int key) {
    const IntervalAttention& f = a.forward;
    const auto row_of = [&](int position) {
      const int token = min(max(position - f.first_position, 0), f.num_queries);
      return min(max(token * a.group, work.begin), work.end);
    };
    return {row_of(sm90::first_position_of(f.rule, key)),
            row_of(sm90::last_position_of(f.rule, key) + 1)};
  }

  /// Rows that attend each of a thread's two keys, ascending both.
  struct Attended {
    sm90::Span rows[2];
    __device__ bool operator()(int r, int row) const {
      return row >= rows[r].begin && row < rows[r].end;
    }
    /// Whether some pair (every pair) of a tile of rows may be (is) attended.
    __device__ bool any(int first_row) const {
      return first_row + kRows > rows[0].begin && first_row < rows[1].end;
    }
    __device__ bool all(int first_row) const {
      return first_row >= rows[1].begin && first_row + kRows <= rows[0].end;
    }
  };

  __device__ static void run(const BackwardArguments& a, Shared& s, int unit) {
    const Work work = work_of(a, unit);
    if (!work.wanted) return;
    const IntervalAttention& f = a.forward;
    const HeadTensors<T> head(a, work.batch, work.kv_head);
    const int lane = threadIdx.x % 32, own_row = threadIdx.x / 32 * 16;
    // Tiles of rows by their first row; the last one to come may begin before the work does.
    const auto exists = [&](int row) { return row + kRows > work.begin; };
    const auto fetch_rows = [&](int first, int stage) {
      Tiles::template copy_rows<kRows>(s.x[stage], s.y[stage], [&](int i) {
        return head.row(first + i, first + i >= work.begin);
      });
    };
    // Of thread i the lse, of thread kRows + i the delta of a tile's row i.
    const bool is_lse = threadIdx.x < kRows, has_stats = threadIdx.x < 2 * kRows;
    const float* const stats_of_rows = (is_lse ? a.plan.lse : a.plan.delta) + head.first_row;
    const auto read_stats = [&](int first) {
      const int row = first + threadIdx.x % kRows;
      return has_stats && row >= work.begin ? stats_of_rows[row] : 0.f;
    };
    const auto write_stats = [&](int stage, float value) {
      float* const to = is_lse ? s.lse[stage] : s.delta[stage];
      if (has_stats) to[threadIdx.x % kRows] = value;
    };

    if (exists(work.end - kRows)) {
      Tiles::template copy_rows<kKeys>(s.own_x, s.own_y, [&](int i) {
        return head.key(work.first_key + i, work.first_key + i < f.num_keys);
      });
    }
    for (int i = 0; i < kStages - 1; ++i) {
      const int row = work.end - (i + 1) * kRows;
      if (exists(row)) fetch_rows(row, i);
      commit_copies();
      write_stats(i, read_stats(row));
    }

    const int own_key = work.first_key + own_row + lane / 4;
    const Attended attended{{rows_of(a, work, own_key), rows_of(a, work, own_key + 8)}};
    float d_k[kKeyColumns / 8][4] = {}, d_v[kValueColumns / 8][4] = {};
    int stage = 0;
    for (int row = work.end - kRows; exists(row); row -= kRows) {
      wait_copies<kStages - 2>();
      __syncthreads();  // the tile is there, and all threads are done with the one before
      const int ahead = row - (kStages - 1) * kRows, free = stage == 0 ? kStages - 1 : stage - 1;
      if (exists(ahead)) fetch_rows(ahead, free);
      commit_copies();
      const float stats = read_stats(ahead);
      if (__any_sync(~0u, attended.any(row))) {
        const T *const q = s.x[stage], *const d_out = s.y[stage];
        Products x;  // s, then dp
        Weights p, ds;
        Tiles::template multiply<DK>(x, s.own_x, own_row, q);
        if (__all_sync(~0u, attended.all(row))) {
          probabilities<false>(a, s.lse[stage], attended, row, x);
        } else {
          probabilities<true>(a, s.lse[stage], attended, row, x);
        }
        Tiles::pack_weights(p, x);
        Tiles::template accumulate<DV, kValueColumns>(d_v, p, d_out + work.part * kValueColumns);
        Tiles::template multiply<DV>(x, s.own_y, own_row, d_out);
        differentiate(s.delta[stage], p, x);
        Tiles::pack_weights(ds, x);
        Tiles::template accumulate<DK, kKeyColumns>(d_k, ds, q + work.part * kKeyColumns);
      }
      write_stats(free, stats);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    store(a, unit, d_k, d_v);
  }

  /// Of the two neighbouring rows whose products n this thread has.
  __device__ static float2 two_of(const float (&stats)[kRows], int n) {
    return *reinterpret_cast<const float2*>(stats + n * 8 + threadIdx.x % 4 * 2);
  }
  /// p from s; 0 where a pair is not attended.
  template <bool kMasked>
  __device__ static void probabilities(const BackwardArguments& a, const float (&lse)[kRows],
                                       const Attended& attended, int first_row, Products& x) {
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 shift = two_of(lse, n);
      const int row = first_row + n * 8 + threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[n][i] = fast_exp2(fmaf(x[n][i], a.scale_log2, -(i % 2 == 0 ? shift.x : shift.y)));
        if (kMasked && !attended(i / 2, row + i % 2)) x[n][i] = 0.f;
      }
    }
  }
  /// ds from dp. Where p is 0, so is ds, or it is not finite and then computed once more.
  __device__ static void differentiate(const float (&delta)[kRows], const Weights& p, Products& x) {
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 shift = two_of(delta, n);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 both = unpack(p[n / 2][n % 2 * 2 + r], T{});
        x[n][2 * r] = both.x * (x[n][2 * r] - shift.x);
        x[n][2 * r + 1] = both.y * (x[n][2 * r + 1] - shift.y);
      }
    }
  }

  /// Computes the work again: kept across the loop it would cost registers.
  __device__ static void store(const BackwardArguments& a, int unit,
                               float (&d_k)[kKeyColumns / 8][4],
                               float (&d_v)[kValueColumns / 8][4]) {
    const Work work = work_of(a, unit);
    const IntervalAttention& f = a.forward;
    const int first = work.first_key + threadIdx.x / 32 * 16;
    if (a.plan.num_chunks > 1) {
      const int64_t heads = int64_t(f.batch) * f.num_kv_heads,
                    head = work.chunk * heads + work.batch * f.num_kv_heads + work.kv_head;
      store_partials(a.plan.partials + head * f.num_keys * (DK + DV), f, first, work.part, d_k,
                     d_v);
      return;
    }
    const auto target = [&](void* to, int dim) {
      const int first_column = work.part * (dim / kParts);
      return [=, &f](int row) -> T* {
        const int key = first + row;
        if (key >= f.num_keys) return nullptr;
        const int64_t place =
            (int64_t(work.batch) * f.num_keys + key) * f.num_kv_heads + work.kv_head;
        return static_cast<T*>(to) + place * dim + first_column;
      };
    };
    bool good = Tiles::template store<kKeyColumns>(d_k, f.scale, target(a.d_k, DK));
    good &= Tiles::template store<kValueColumns>(d_v, 1.f, target(a.d_v, DV));
    if (!good) *a.plan.bad = 1;
  }

  __device__ static void store_partials(float* partials, const IntervalAttention& f, int first_key,
                                        int part, const float (&d_k)[kKeyColumns / 8][4],
                                        const float (&d_v)[kValueColumns / 8][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = first_key + lane / 4 + 8 * r;
      if (key >= f.num_keys) continue;
      float *const to = partials + int64_t(key) * (DK + DV) + lane % 4 * 2,
                   *const to_k = to + part * kKeyColumns,
                   *const to_v = to + DK + part * kValueColumns;
#pragma unroll
      for (int c = 0; c < kKeyColumns / 8; ++c)
        *reinterpret_cast<float2*>(to_k + c * 8) =
            make_float2(d_k[c][2 * r] * f.scale, d_k[c][2 * r + 1] * f.scale);
#pragma unroll
      for (int c = 0; c < kValueColumns / 8; ++c)
        *reinterpret_cast<float2*>(to_v + c * 8) = make_float2(d_v[c][2 * r], d_v[c][2 * r + 1]);
    }
  }
};

}  // namespace nsa::kernels::sm80
