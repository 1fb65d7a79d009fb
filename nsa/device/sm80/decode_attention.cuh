// One decode step of one (sequence, KV head) by a cluster of blocks of threads ("ranks").
//
// First every rank attends its share of the compressed blocks and of the window, some warps the
// one, some the other, and keeps the logits of its blocks in shared memory. The ranks exchange
// maxima and sums, turn logits into probabilities and block scores, exchange their best blocks, and
// all of them pick the same ones. Then each attends its share of the selected tokens. Every rank
// sums some columns of the outputs over the parts that all ranks send it, in the order of ranks.
// Shares depend on sizes only, so a step gives the same bits every time.
//
// Most of this runs once a launch, so it costs what loading its instructions costs: loops that do
// not wait for memory stay rolled, and both rounds of attention are one loop.
#pragma once
#include <climits>

#include "nsa/device/sm80/cluster.cuh"
#include "nsa/device/sm80/decode_launch.h"
#include "nsa/device/sm80/decode_row.cuh"
#include "nsa/device/sm80/decode_tiles.cuh"
#include "nsa/device/sm80/quad.cuh"

namespace nsa::device::sm80 {

constexpr int kMostHeads = 16, kMostWarps = 8, kLeastWarps = 4, kMostChosen = 32, kChunk = 32;

template <int DK, int DV, typename T>
struct DecodeKernel {
  static constexpr int kStages = decode_stages(DK);
  using Tiles = DecodeTiles<DK, DV, kStages, T>;
  static constexpr int kRingBytes = kStages * Tiles::kStageBytes;
  static_assert(kRingBytes == decode_ring_bytes(DK, DV));
  static constexpr int kQuads = DV / 4, kLogQuads = DV == 64 ? 4 : 5;

  struct Shared {
    float gates[kMostHeads][3];
    float2 totals[2][kMostHeads];  // maximum and 1 / sum over all ranks: cmp (later sel), win
    int chosen[kMostChosen], ids[kMostChosen];
    int num_ids;
    int loaded[3], reads[kMostRanks][3];  // of this rank; of all, at rank 0
  };

  const DecodeArguments& a;
  const DecodeAttention& p;
  const DecodeRow row;
  char* const dynamic;
  Shared& shared;
  const int lane, warp, warps, threads, group, ranks;
  uint32_t q[DK / 16][4];

  __device__ DecodeKernel(const DecodeArguments& arguments, char* memory, Shared& fixed)
      : a(arguments),
        p(arguments.p),
        row(arguments),
        dynamic(memory),
        shared(fixed),
        lane(threadIdx.x % 32),
        warp(threadIdx.x / 32),
        warps(arguments.plan.warps),
        threads(arguments.plan.warps * 32),
        group(arguments.group),
        ranks(arguments.plan.ranks) {}

  template <typename V>
  __device__ V* at(int offset) const {
    return reinterpret_cast<V*>(dynamic + offset);
  }
  __device__ float* logits() const { return at<float>(a.plan.area); }
  /// Parts of this rank's columns: [branch][from rank][quad].
  __device__ float4* inbox() const { return at<float4>(a.plan.area); }
  __device__ float* parts(int of_warp) const { return at<float>(of_warp * kRingBytes); }
  /// [rank][head] (maximum, sum): 0 compressed, later selected; 1 window.
  __device__ float2* stats(int which) const {
    return at<float2>(a.plan.stats) + which * ranks * kMostHeads;
  }
  __device__ float2* warp_stats() const { return at<float2>(a.plan.warp_stats); }
  __device__ float* weights() const { return at<float>(a.plan.weights); }
  __device__ float2* turns() const { return at<float2>(a.plan.candidates); }  // until there are any
  __device__ uint64_t* candidates() const { return at<uint64_t>(a.plan.candidates); }
  __device__ uint64_t* keys() const { return at<uint64_t>(a.plan.keys); }
  __device__ int64_t first_head() const {
    return int64_t(row.batch) * p.num_heads + row.kv_head * group;
  }
  __device__ int64_t kv_row() const { return int64_t(row.batch) * p.num_kv_heads + row.kv_head; }

  // ---- the new token

  __device__ bool rotates() const { return p.appends && p.append.half_turns != nullptr; }

  __device__ void make_turns() const {
    for (int i = threadIdx.x; i < DK / 2; i += threads) {
      double sine, cosine;
      // In half turns: reduced without the slow path for large angles, which needs a stack.
      sincospi(row.t * p.append.half_turns[i], &sine, &cosine);
      turns()[i] = make_float2(static_cast<float>(cosine), static_cast<float>(sine));
    }
  }

  /// Eight columns from `column` on, rotated.
  __device__ uint4 rotated(const uint4& x, int column) const {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack(words[i], T{}), turn = turns()[column / 2 + i];
      out[i] = pack<T>(two.x * turn.x - two.y * turn.y, two.x * turn.y + two.y * turn.x);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
  }

  /// Whether this rank writes the new row of the source, and whether a block ends with it. Whoever
  /// reads a new row in the first round writes it, so that no rank waits for another.
  __device__ bool owns_source() const {
    return row.rank == (row.emits(a) ? row.owner(a, a.units_of_blocks.quotient(row.num_blocks - 1))
                                     : ranks - 1);
  }
  __device__ bool owns_tokens() const { return row.rank == ranks - 1; }

  /// The new token into the caches; every thread has at most a few pieces of 16 bytes.
  __device__ void append(bool tokens, bool source) const {
    const DecodeAppend& x = p.append;
    const int64_t win_row = row.sequence * p.window.num_slots + a.slots.remainder(row.t);
    const int64_t src_row = row.sequence * x.source.num_slots + a.source_slots.remainder(row.t);
    const int64_t sel_row = row.page_row(p.selected, a.selected_page, row.t);
    constexpr int kPieces = (DK + DV) / 8;
#pragma unroll 1
    for (int i = threadIdx.x; i < 3 * kPieces; i += threads) {
      const int cache = i / kPieces, piece = i % kPieces;
      if (!(cache == 2 ? source : tokens)) continue;
      const bool key = piece < DK / 8;
      const Strided& from = cache == 0   ? (key ? x.k_sel : x.v_sel)
                            : cache == 1 ? (key ? x.k_win : x.v_win)
                                         : (key ? x.k_cmp_src : x.v_cmp_src);
      void* const to = cache == 0   ? (key ? p.selected.k : p.selected.v)
                       : cache == 1 ? (key ? p.window.k : p.window.v)
                                    : (key ? x.source.k : x.source.v);
      const int64_t to_row = cache == 0 ? sel_row : cache == 1 ? win_row : src_row;
      const int width = key ? DK : DV, column = (key ? piece : piece - DK / 8) * 8;
      uint4 values = *reinterpret_cast<const uint4*>(static_cast<const T*>(from.data) +
                                                     row.batch * from.batch +
                                                     row.kv_head * from.head + column);
      if (key && rotates() && (cache != 2 || x.rotate_source)) values = rotated(values, column);
      *reinterpret_cast<uint4*>(static_cast<T*>(to) +
                                (to_row * p.num_kv_heads + row.kv_head) * width + column) = values;
    }
  }

  /// The mean of the last l tokens of the source becomes the newest compressed block.
  __device__ void emit() const {
    const RingKv& source = p.append.source;
    const int64_t block = row.page_row(p.compressed, a.compressed_page, row.num_blocks - 1);
    for (int i = threadIdx.x; i < (DK + DV) / 2; i += threads) {
      const bool key = i < DK / 2;
      const int width = key ? DK : DV, column = 2 * (key ? i : i - DK / 2);
      const T* from = static_cast<const T*>(key ? source.k : source.v) + column;
      const float count = static_cast<float>(p.block_size);
      float2 sum = make_float2(0.f, 0.f);
#pragma unroll 4
      for (int token = row.t + 1 - p.block_size; token <= row.t; ++token) {
        const int64_t at = row.sequence * source.num_slots + a.source_slots.remainder(token);
        const float2 two = unpack(
            *reinterpret_cast<const uint32_t*>(from + (at * p.num_kv_heads + row.kv_head) * width),
            T{});
        sum.x += two.x, sum.y += two.y;
      }
      T* to = static_cast<T*>(key ? p.compressed.k : p.compressed.v) +
              (block * p.num_kv_heads + row.kv_head) * width + column;
      *reinterpret_cast<uint32_t*>(to) = pack<T>(sum.x / count, sum.y / count);
    }
    if (threadIdx.x == 0 && p.append.emission_reads != nullptr)
      p.append.emission_reads[row.sequence * p.num_kv_heads + row.kv_head] += p.block_size;
  }

  /// Gates; q by way of shared memory, rotated, into registers; the new token into the caches.
  __device__ void prepare() {
    constexpr int kPieces = DK / 8, kMost = kMostHeads * kPieces / (kLeastWarps * 32);
    uint4 values[kMost];
    const T* from = static_cast<const T*>(p.q.data) + row.batch * p.q.batch +
                    int64_t(row.kv_head) * group * p.q.head;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int piece = threadIdx.x + i * threads, head = piece / kPieces;
      values[i] =
          head < group
              ? *reinterpret_cast<const uint4*>(from + head * p.q.head + piece % kPieces * 8)
              : make_uint4(0, 0, 0, 0);
    }
    if (rotates()) make_turns();
    activate_gates();
    __syncthreads();
    const uint32_t staged = shared_address(logits());
#pragma unroll 1
    for (int i = 0; i < kMost; ++i) {
      const int piece = threadIdx.x + i * threads, head = piece / kPieces,
                column = piece % kPieces * 8;
      if (head >= kMostHeads) break;
      uint4 x = values[0];
#pragma unroll
      for (int j = 1; j < kMost; ++j)
        if (j == i) x = values[j];
      if (rotates()) x = rotated(x, column);
      if (p.q_rotated != nullptr && row.rank == 0 && head < group)
        *reinterpret_cast<uint4*>(static_cast<T*>(p.q_rotated) + (first_head() + head) * DK +
                                  column) = x;
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(
                       staged + Tiles::template offset<DK>(head, column / 8)),
                   "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                   : "memory");
    }
    if (p.appends) {
      const bool source = owns_source();
      if (source || owns_tokens()) append(owns_tokens(), source);
      if (source && row.emits(a)) {
        __syncthreads();
        emit();
      }
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < DK / 16; ++c)
      load_matrices(q[c], staged + Tiles::template offset<DK>(lane % 16, c * 2 + lane / 16));
    __syncthreads();   // logits come into this place,
    cluster_arrive();  // those of other ranks too
  }

  __device__ void activate_gates() const {
    const int head = threadIdx.x;
    if (head >= group) return;
    const int of = a.heads_of_gate.quotient(row.kv_head * group + head);
    const int64_t place = (int64_t(row.batch) * p.gate_heads + of) * 3;
    const T* logit = static_cast<const T*>(p.gate_logits) + place;
    float x[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = static_cast<float>(logit[i]);
    if (p.gate == GateFunction::kSoftmax) {
      const float top = fmaxf(x[0], fmaxf(x[1], x[2]));
#pragma unroll
      for (int i = 0; i < 3; ++i) x[i] = expf(x[i] - top);
      const float sum = x[0] + x[1] + x[2];
#pragma unroll
      for (int i = 0; i < 3; ++i) x[i] = __fdividef(x[i], sum);
    } else if (p.gate == GateFunction::kSigmoid) {
#pragma unroll
      for (int i = 0; i < 3; ++i) x[i] = 1.f / (1.f + expf(-x[i]));
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      shared.gates[head][i] = x[i];
      if (p.gates != nullptr && row.rank == 0) p.gates[place + i] = x[i];  // equal for its heads
    }
  }

  // ---- attention

  /// What a warp attends in one round: tiles first, first + step, ... of the keys of a branch.
  struct Share {
    int branch, first, step, num_keys;
  };

  /// Where key lane % 16 of a tile is. The window counts keys from the newest on. The page comes
  /// from memory: use it late.
  __device__ DecodeRow::Place find(const Share& share, int tile) const {
    const int key = tile * kDecodeTile + lane % kDecodeTile;
    if (key >= share.num_keys) return {-1, 1, 0};
    if (share.branch == kWin)
      return {row.sequence * p.window.num_slots + a.slots.remainder(row.t - key), 1, 0};
    if (share.branch == kCmp) return row.find(p.compressed, a.compressed_page, row.block0 + key);
    const int unit = a.unit.quotient(key);
    return row.find(p.selected, a.selected_page,
                    (shared.ids[unit] - unit) * p.sel_block_size + key);
  }

  /// In the first round prepare() runs while the first copies are on their way; `late`: before
  /// them, where it writes what they read.
  __device__ void attend(const Share& share, bool first_round, bool late, DecodeSums<DV>& sums) {
    const T* k = static_cast<const T*>(share.branch == kCmp   ? p.compressed.k
                                       : share.branch == kSel ? p.selected.k
                                                              : p.window.k) +
                 row.kv_head * DK;
    const T* v = static_cast<const T*>(share.branch == kCmp   ? p.compressed.v
                                       : share.branch == kSel ? p.selected.v
                                                              : p.window.v) +
                 row.kv_head * DV;
    const uint32_t ring = shared_address(dynamic) + warp * kRingBytes;
    const int tiles = (share.num_keys + kDecodeTile - 1) / kDecodeTile;
    int loaded = 0, to = 0, from = 0, next = share.first;
    DecodeRow::Place place = find(share, next);
    const auto fetch = [&] {
      const int cache_row =
          place.page < 0 ? -1 : static_cast<int>(place.page) * place.scale + place.within;
      if (next < tiles) {
        const uint32_t stage = ring + to * Tiles::kStageBytes;
        Tiles::template copy_rows<DK>(stage, k, p.num_kv_heads * DK, cache_row);
        Tiles::template copy_rows<DV>(stage + Tiles::kKeyBytes, v, p.num_kv_heads * DV, cache_row);
        loaded += __popc(__ballot_sync(~0u, cache_row >= 0) & 0xffff);
      }
      commit_copies();  // an empty group keeps the count of groups
      to = to + 1 == kStages ? 0 : to + 1;
      next += share.step;
      place = find(share, next);  // its page is looked up one tile ahead
    };
#pragma unroll 1
    for (int step = 0; step < 2; ++step) {
      if ((step == 0) == late) {
        if (first_round) prepare();
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < kStages - 1; ++i) fetch();
    }
    sums.clear();
#pragma unroll 1
    for (int tile = share.first; tile < tiles; tile += share.step) {
      fetch();
      wait_copies<kStages - 1>();
      __syncwarp();
      const LogitRows here{share.branch == kCmp ? logits() + a.halo + tile * kDecodeTile : nullptr,
                           a.plan.logits_stride, group};
      Tiles::consume(ring + from * Tiles::kStageBytes, share.num_keys - tile * kDecodeTile, q,
                     a.scale_log2, here, sums);
      __syncwarp();
      from = from + 1 == kStages ? 0 : from + 1;
    }
    wait_copies<0>();
    __syncwarp();
    if (lane == 0 && loaded > 0) atomicAdd(&shared.loaded[share.branch], loaded);
  }

  // ---- from logits to blocks

  /// Sends this rank's maxima and sums to all ranks: of one branch, or of two whose warps part at
  /// `middle`.
  __device__ void send_stats(int branches, int middle) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < ranks * branches * kMostHeads; i += threads) {
      const int head = i % kMostHeads, which = branches == 2 ? i / kMostHeads % 2 : 0,
                to = i / kMostHeads / branches;
      of_rank(stats(which), to)[row.rank * kMostHeads + head] =
          joined(warp_stats() + head, kMostHeads, which == 0 ? 0 : middle,
                 which == 0 ? middle : warps, a.scale_log2);
    }
  }

  /// The last columns of logits to the rank of the next unit, whose scores need them.
  __device__ void send_halo() const {
    if (row.unit1(a) == row.unit0(a) || row.unit1(a) > row.current) return;
    const int end = row.unit1(a) * a.blocks_of_unit;
    float* to = of_rank(logits(), row.owner(a, row.unit1(a)));
#pragma unroll 1
    for (int i = threadIdx.x; i < a.halo * kMostHeads; i += threads) {
      const int head = i % kMostHeads, column = i / kMostHeads, block = end - a.halo + column;
      if (block < row.num_blocks && head < group)
        to[head * a.plan.logits_stride + column] =
            logits()[head * a.plan.logits_stride + block - row.block0 + a.halo];
    }
  }

  /// Totals over all ranks; lse. 32 threads, of which the first 16 have `first` and the others the
  /// window.
  __device__ void total_up(int first, int branches) const {
    const int which = threadIdx.x / kMostHeads, head = threadIdx.x % kMostHeads;
    if (which >= branches) return;
    const float2 all = joined(stats(which) + head, kMostHeads, 0, ranks, a.scale_log2);
    shared.totals[which][head] = make_float2(all.x, all.y == 0.f ? 0.f : __frcp_rn(all.y));
    float* lse = p.lse[which == 0 ? first : static_cast<int>(kWin)];
    if (row.rank == 0 && head < group && lse != nullptr)
      lse[first_head() + head] =
          all.y == 0.f
              ? -INFINITY
              : ((all.x == -INFINITY ? 0.f : all.x) * a.scale_log2 + log2f(all.y)) * .693147181f;
  }

  /// P of this rank's blocks and of its halo, in place of the first head's logits.
  __device__ void sum_heads() const {
#pragma unroll 1
    for (int i = threadIdx.x; i < row.block1 - row.block0 + a.halo; i += threads) {
      float sum = 0.f;
#pragma unroll 4
      for (int head = 0; head < group; ++head) {
        const float2 total = shared.totals[0][head];
        const float s = logits()[head * a.plan.logits_stride + i];
        sum += power_of_two((s - total.x) * a.scale_log2) * total.y;
      }
      logits()[i] = sum;
    }
  }

  /// Scores of this rank's units as keys that order as the selection does (0: no candidate), each
  /// chunk of 32 sorted, the best first.
  __device__ void score_units() const {
    const int units = row.unit1(a) - row.unit0(a);
#pragma unroll 1
    for (int first = warp * kChunk; first < units; first += warps * kChunk) {
      const int unit = row.unit0(a) + first + lane;
      uint64_t key = 0;
      if (unit < row.unit1(a)) {
        float score = 0.f;
#pragma unroll 1
        for (int offset = -a.halo; offset < a.blocks_of_unit; ++offset) {
          const int block = unit * a.blocks_of_unit + offset;
          if (block < 0 || block >= row.num_blocks) continue;
          const float weight =
              static_cast<float>(min(offset + a.halo + 1, a.blocks_of_unit) - max(offset, 0));
          score = __fadd_rn(
              score, __fmul_rn(weight, logits()[block - row.unit0(a) * a.blocks_of_unit + a.halo]));
        }
        if (p.scores != nullptr) p.scores[kv_row() * p.score_width + unit] = score;
        const uint64_t order = score != score ? 1u : __float_as_uint(score) + 2u;
        if (unit >= row.num_initial(p) && unit < row.first_local(p))
          key = order << 32 | (0xffffffffu - unit);
      }
      int place = 0;
#pragma unroll 4
      for (int i = 0; i < kChunk; ++i) {
        const uint64_t other = __shfl_sync(~0u, key, i);
        place += other > key || (other == key && i < lane) ? 1 : 0;  // equal: both none
      }
      keys()[first + place] = key;
    }
    if (p.scores == nullptr) return;
#pragma unroll 1
    for (int unit = row.current + 1 + row.rank * threads + threadIdx.x; unit < p.score_width;
         unit += ranks * threads)
      p.scores[kv_row() * p.score_width + unit] = 0.f;
  }

  /// How many of `lists` descending lists' entries are above the key, lists `length` <= 32 long.
  __device__ static int rank_in(const uint64_t* all, int lists, int length, uint64_t key) {
    int rank = 0;
#pragma unroll 1
    for (int list = 0; list < lists; ++list) {
      const uint64_t* one = all + list * length;
      int above = 0;
#pragma unroll
      for (int step = 32; step > 0; step /= 2)
        if (above + step <= length && one[above + step - 1] > key) above += step;
      rank += above;
    }
    return rank;
  }

  /// The best of this rank to all ranks, sorted.
  __device__ void send_candidates() const {
    const int chunks = (row.unit1(a) - row.unit0(a) + kChunk - 1) / kChunk;
    const int own =
        max(0, min(row.first_local(p), row.unit1(a)) - max(row.num_initial(p), row.unit0(a)));
#pragma unroll 1
    for (int i = threadIdx.x; i < chunks * kChunk; i += threads) {
      if (i % kChunk >= row.places(p)) continue;
      const uint64_t key = keys()[i];
      if (key == 0) continue;
      const int place = chunks == 1 ? i : rank_in(keys(), chunks, kChunk, key);
      if (place >= row.places(p)) continue;
#pragma unroll 4
      for (int to = 0; to < ranks; ++to)
        of_rank(candidates(), to)[row.rank * row.places(p) + place] = key;
    }
    const int blanks = max(0, row.places(p) - own);
    for (int to = warp; to < ranks; to += warps)
      if (lane < blanks) of_rank(candidates(), to)[row.rank * row.places(p) + own + lane] = 0;
  }

  __device__ void choose() const {
#pragma unroll 1
    for (int i = threadIdx.x; i < ranks * row.places(p); i += threads) {
      const uint64_t key = candidates()[i];
      if (key == 0) continue;
      const int place = rank_in(candidates(), ranks, row.places(p), key);
      if (place < row.places(p))
        shared.chosen[place] = static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
    }
    __syncthreads();
    if (warp == 0) sort_ids();
    __syncthreads();
  }

  /// Forced and chosen blocks, ascending; one warp.
  __device__ void sort_ids() const {
    const int local = row.current + 1 - row.first_local(p);
    int id = INT_MAX;
    if (lane < row.num_initial(p)) {
      id = lane;
    } else if (lane < row.num_initial(p) + local) {
      id = row.first_local(p) + lane - row.num_initial(p);
    } else if (lane < row.num_initial(p) + local + row.places(p)) {
      id = shared.chosen[lane - row.num_initial(p) - local];
    }
    int place = 0;
#pragma unroll 8
    for (int i = 0; i < 32; ++i) place += __shfl_sync(~0u, id, i) < id ? 1 : 0;
    const int count = __popc(__ballot_sync(~0u, id != INT_MAX));
    if (id != INT_MAX) shared.ids[place] = id;
    if (lane == 0) shared.num_ids = count;
  }

  /// Chosen ids, and neighbouring ones as one interval; a warp whose lane i has id i.
  __device__ void write_selection() const {
    const int count = shared.num_ids, id = lane < count ? shared.ids[lane] : INT_MAX;
    if (p.block_idx != nullptr && lane < p.top_n)
      p.block_idx[kv_row() * p.top_n + lane] = lane < count ? id : -1;
    if (p.ranges == nullptr) return;
    const int before = __shfl_up_sync(~0u, id, 1), after = __shfl_down_sync(~0u, id, 1);
    const bool starts = lane < count && (lane == 0 || before + 1 != id);
    const bool ends = lane < count && (lane + 1 >= count || after != id + 1);
    const uint32_t all_starts = __ballot_sync(~0u, starts), upto = (2u << lane) - 1;
    int2* to = reinterpret_cast<int2*>(p.ranges) + kv_row() * p.top_n;
    const int place = __popc(all_starts & upto) - 1;
    if (starts) to[place].x = id * p.sel_block_size;
    if (ends) to[place].y = min((id + 1) * p.sel_block_size, row.t + 1);
    if (lane >= __popc(all_starts) && lane < p.top_n) to[lane] = make_int2(0, 0);
  }

  // ---- from parts to outputs

  /// What the parts of each warp count for: below the totals of both branches, or below the maximum
  /// of this block of threads.
  __device__ void weigh_warps(bool against_totals, int middle) const {
    for (int i = threadIdx.x; i < warps * kMostHeads; i += threads) {
      const int head = i % kMostHeads;
      float2 total = shared.totals[i / kMostHeads < middle ? 0 : 1][head];
      if (!against_totals) {
        total = make_float2(-INFINITY, 1.f);
#pragma unroll 1
        for (int w = 0; w < warps; ++w)
          total.x = fmaxf(total.x, warp_stats()[w * kMostHeads + head].x);
      }
      weights()[i] = share_of(warp_stats()[i], total.x, a.scale_log2) * total.y;
    }
  }

  /// Quads a rank and head, as a power of two.
  __device__ int log_quads_of_rank() const { return kLogQuads - a.plan.log_ranks; }

  /// The parts of warps [begin, end) together, each column to the rank that sums it.
  __device__ void send_parts(int branch, int begin, int end) const {
    const int log_each = log_quads_of_rank();
    const int place = ((branch << a.plan.log_ranks) + row.rank) * group << log_each;
#pragma unroll 1
    for (int i = threadIdx.x; i < group * kQuads; i += threads) {
      const int head = i / kQuads, quad = i % kQuads;
      float4 all = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
      for (int w = begin; w < end; ++w) {
        const float weight = weights()[w * kMostHeads + head];
        const float4 part = *reinterpret_cast<const float4*>(parts(w) + Tiles::place(head, quad));
        all.x += weight * part.x, all.y += weight * part.y;
        all.z += weight * part.z, all.w += weight * part.w;
      }
      of_rank(inbox(),
              quad >> log_each)[place + (head << log_each) + (quad & ((1 << log_each) - 1))] = all;
    }
  }

  /// Adds up the parts of all ranks for this rank's columns.
  __device__ void write_outputs() const {
    const int log_each = log_quads_of_rank(), each = 1 << log_each;
#pragma unroll 1
    for (int i = threadIdx.x; i < group * each; i += threads) {
      const int head = i >> log_each;
      const int64_t to =
          ((first_head() + head) * kQuads + row.rank * each + (i & (each - 1))) * 2;  // in pairs
      float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 1
      for (int branch = 0; branch < 3; ++branch) {
        float4 out = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
        for (int r = 0; r < ranks; ++r) {
          const float4 part = inbox()[((branch << a.plan.log_ranks) + r) * group * each + i];
          const float weight = branch == kSel ? weights()[r * kMostHeads + head] : 1.f;
          out.x += weight * part.x, out.y += weight * part.y;
          out.z += weight * part.z, out.w += weight * part.w;
        }
        const float gate = shared.gates[head][branch];
        sum.x += gate * out.x, sum.y += gate * out.y, sum.z += gate * out.z, sum.w += gate * out.w;
        if (p.branch_out[branch] != nullptr)
          *reinterpret_cast<uint2*>(static_cast<uint32_t*>(p.branch_out[branch]) + to) =
              make_uint2(pack<T>(out.x, out.y), pack<T>(out.z, out.w));
      }
      *reinterpret_cast<uint2*>(static_cast<uint32_t*>(p.out) + to) =
          make_uint2(pack<T>(sum.x, sum.y), pack<T>(sum.z, sum.w));
    }
  }

  /// The last KV head of a sequence to come here makes it one token longer.
  __device__ void finish_append() const {
    if (!p.appends || row.rank != 0 || threadIdx.x != 0) return;
    if (atomicAdd(&p.append.arrivals[row.sequence], 1) != p.num_kv_heads - 1) return;
    p.append.arrivals[row.sequence] = 0;
    p.num_tokens[row.sequence] = row.t + 1;
    p.append.num_blocks[row.sequence] = row.num_blocks;
  }

  /// Of all warps those that attend compressed blocks, by their part of the tiles.
  __device__ int compressed_warps(int cmp_tiles, int win_tiles) const {
    if (cmp_tiles == 0) return 0;
    if (win_tiles == 0) return warps;
    const int all = cmp_tiles + win_tiles;
    return min(max((2 * warps * cmp_tiles + all) / (2 * all), 1), warps - 1);
  }

  /// First round: some warps the compressed blocks of this rank, the others its part of the window,
  /// where the newest key is the last rank's. Second round: every warp selected tokens.
  __device__ Share share_of_round(int round, int cmp_warps) const {
    if (round == 1)
      return {kSel, row.rank + ranks * warp, ranks * warps,
              (shared.num_ids - 1 - row.current) * p.sel_block_size + row.t + 1};
    if (warp < cmp_warps) return {kCmp, warp, cmp_warps, row.block1 - row.block0};
    return {kWin, ranks - 1 - row.rank + ranks * (warp - cmp_warps), ranks * (warps - cmp_warps),
            row.num_window(p)};
  }

  /// A row for which nothing fits: NaN, and the sequence stays as it is.
  __device__ void refuse() const {
    for (int i = threadIdx.x; row.rank == 0 && i < group * DV / 2; i += threads)
      static_cast<uint32_t*>(p.out)[first_head() * (DV / 2) + i] = pack<T>(NAN, NAN);
  }

  __device__ void run() {
    if (row.t < 0 || row.t >= p.max_tokens)
      return refuse();  // all ranks and KV heads of a sequence
    if (threadIdx.x < 3) shared.loaded[threadIdx.x] = 0;
    const int from_end = ranks - 1 - row.rank;
    const int window_tiles = (row.num_window(p) + kDecodeTile - 1) / kDecodeTile;
    const int cmp_warps = compressed_warps(
        (row.block1 - row.block0 + kDecodeTile - 1) / kDecodeTile,
        from_end < window_tiles ? ((window_tiles - from_end - 1) >> a.plan.log_ranks) + 1 : 0);
    const bool late = p.appends && (owns_tokens() || owns_source());
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
      asm volatile("" : "+r"(round));  // or the compiler makes two copies of everything
      {
        DecodeSums<DV> sums;
        attend(share_of_round(round, cmp_warps), round == 0, late, sums);
        Tiles::leave(sums, parts(warp), warp_stats() + warp * kMostHeads);
      }
      __syncthreads();
      if (round == 0) {
        cluster_wait();  // every rank is there, and done with its q
        send_halo();
      } else {
        weigh_warps(false, warps);
        __syncthreads();
        send_parts(kSel, 0, warps);
      }
      send_stats(round == 0 ? 2 : 1, round == 0 ? cmp_warps : warps);
      if (threadIdx.x < 3)
        of_rank(&shared, 0)->reads[row.rank][threadIdx.x] = shared.loaded[threadIdx.x];
      cluster_arrive();
      cluster_wait();
      total_up(round == 0 ? kCmp : kSel, round == 0 ? 2 : 1);
      __syncthreads();
      if (round == 0) select(cmp_warps);
    }
    for (int i = threadIdx.x; i < ranks * kMostHeads; i += threads) {
      const float2 total = shared.totals[0][i % kMostHeads];
      weights()[i] = share_of(stats(0)[i], total.x, a.scale_log2) * total.y;
    }
    __syncthreads();
    write_outputs();
    if (row.rank == 0 && threadIdx.x < 3 && p.reads != nullptr) {
      int64_t reads = 0;
#pragma unroll 1
      for (int r = 0; r < ranks; ++r) reads += shared.reads[r][threadIdx.x];
      p.reads[kv_row() * 3 + threadIdx.x] = reads;
    }
    finish_append();
  }

  /// From totals of the first round to the selected blocks; the parts of that round to their ranks.
  __device__ void select(int cmp_warps) {
    weigh_warps(true, cmp_warps);
    sum_heads();
    __syncthreads();
    score_units();
    __syncthreads();
    send_candidates();
    cluster_arrive();
    cluster_wait();  // no rank has logits any more where the parts go
#pragma unroll 1
    for (int branch = kCmp; branch <= kWin; branch += kWin - kCmp)
      send_parts(branch, branch == kCmp ? 0 : cmp_warps, branch == kCmp ? cmp_warps : warps);
    choose();
    if (warp == 0 && row.rank == 0) write_selection();
  }
};

template <int DK, int DV, typename T>
__global__ void __launch_bounds__(kMostWarps * 32)
    decode_kernel(const __grid_constant__ DecodeArguments a) {
  using Kernel = DecodeKernel<DK, DV, T>;
  extern __shared__ __align__(128) char dynamic[];
  __shared__ typename Kernel::Shared shared;
  Kernel(a, dynamic, shared).run();
}

template <int DK, int DV, typename T>
cudaError_t launch_decode(const DecodeAttention& p, const DecodePlan& plan, cudaStream_t stream) {
  const auto kernel = decode_kernel<DK, DV, T>;
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes);
  if (status == cudaSuccess && plan.ranks > 8)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(p.batch * p.num_kv_heads * plan.ranks);
  config.blockDim = dim3(plan.warps * 32);
  config.dynamicSmemBytes = plan.bytes;
  config.stream = stream;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = plan.ranks;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = plan.ranks > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, decode_arguments(p, plan));
}

}  // namespace nsa::device::sm80
