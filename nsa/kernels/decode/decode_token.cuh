// The new token of a decode step: its queries, rotated, into registers, itself and the new tokens
// before it into the caches, and the compressed block that may end with one of them.
#pragma once
#include "nsa/kernels/decode/decode_exchange.cuh"

namespace nsa::kernels::portable {

/// A piece of eight columns of what a new token puts into the caches.
template <int DK, int DV>
struct TokenPiece {
  static constexpr int kPieces = (DK + DV) / 8;  // of one cache
  int cache;                                     // 0 selected, 1 window, 2 source
  bool key;
  int column;
  __device__ explicit TokenPiece(int index)
      : cache(index / kPieces),
        key(index % kPieces < DK / 8),
        column((index % kPieces - (key ? 0 : DK / 8)) * 8) {}

  /// Where the token of a launch that `pair` works for, or one some tokens before it, has it.
  template <typename T>
  __device__ const T* of(const DecodeArguments& a, const DecodePair& pair, int token) const {
    const DecodeAppend& x = a.p.append;
    const Strided& from = cache == 0   ? (key ? x.k_sel : x.v_sel)
                          : cache == 1 ? (key ? x.k_win : x.v_win)
                                       : (key ? x.k_cmp_src : x.v_cmp_src);
    return static_cast<const T*>(from.data) + pair.entry * from.batch + token * from.token +
           pair.kv_head * from.head + column;
  }
};

/// What a thread has of the new token: all that can be asked for before the length of the sequence
/// is known.
template <int DK, int DV, typename T>
struct NewToken {
  using Piece = TokenPiece<DK, DV>;
  static constexpr int kPieces = Piece::kPieces, kQueryPieces = DK / 8,
                       kMostQueries = kMostHeads * kQueryPieces / (kLeastWarps * 32);
#if NSA_CODE_OF_SM80
  static constexpr bool kValuesEarly = false;  // registers: this code would spill
#else
  static constexpr bool kValuesEarly = true;
#endif
  static_assert(3 * kPieces <= kLeastWarps * 32 && DK / 2 <= kLeastWarps * 32, "one a thread");
  uint4 queries[kMostQueries];  // pieces threadIdx.x + i * threads of all heads
  uint4 values;  // piece threadIdx.x of the rows of selected, window and source, if early
  double half_turn = 0;

  /// Where its parts are, null where there are none: known before the launch before has ended.
  struct Sources {
    const T *queries[kMostQueries], *values = nullptr;
    const double* half_turn = nullptr;

    __device__ Sources(const DecodeArguments& a, const DecodePair& pair) {
      const DecodeAttention& p = a.p;
      const int threads = a.plan.warps * 32;
      const T* q = static_cast<const T*>(p.q.data) + pair.entry * p.q.batch +
                   pair.token * p.q.token + int64_t(pair.kv_head) * a.group * p.q.head;
#pragma unroll
      for (int i = 0; i < kMostQueries; ++i) {
        const int piece = threadIdx.x + i * threads, head = piece / kQueryPieces;
        queries[i] =
            anew(head < a.group ? q + head * p.q.head + piece % kQueryPieces * 8 : nullptr);
      }
      if (!p.appends) return;
      if (p.append.half_turns != nullptr && threadIdx.x < DK / 2)
        half_turn = anew(p.append.half_turns + threadIdx.x);
      if (kValuesEarly && threadIdx.x < 3 * kPieces)
        values = anew(own().template of<T>(a, pair, pair.token));
    }
  };

  __device__ explicit NewToken(const Sources& from) {
#pragma unroll
    for (int i = 0; i < kMostQueries; ++i) {
      queries[i] = make_uint4(0, 0, 0, 0);
      if (from.queries[i] != nullptr) queries[i] = ask(from.queries[i]);
    }
    if (from.half_turn != nullptr) half_turn = ask(from.half_turn);
    if (from.values != nullptr) values = ask(from.values);
  }

  /// The piece of this thread, if it is one.
  __device__ static Piece own() { return Piece(threadIdx.x); }

  /// It is not needed in a second round, which the compiler cannot know.
  __device__ __forceinline__ void forget() {
#pragma unroll
    for (int i = 0; i < kMostQueries; ++i) queries[i] = make_uint4(0, 0, 0, 0);
    values = make_uint4(0, 0, 0, 0), half_turn = 0;
  }
};

template <int DK, int DV, typename T>
struct TokenStage {
  using Block = DecodeBlock<DK, DV, T>;
  using Tiles = typename Block::Tiles;
  using Token = NewToken<DK, DV, T>;
  using Piece = TokenPiece<DK, DV>;
  const Block& b;
  const DecodeRow& row;
  const DecodeAttention& p;
  __device__ explicit TokenStage(const Block& block) : b(block), row(block.row), p(block.p) {}

  __device__ __forceinline__ bool rotates() const {
    return p.appends && p.append.half_turns != nullptr;
  }

  /// Whether this rank writes the new row of the source, and makes the block if there is one. The
  /// rank that reads a new row writes it, so that no rank waits for another.
  __device__ __forceinline__ bool owns_source() const {
    return row.rank == (row.makes_block(b.a)
                            ? row.owner(b.a, quotient(b.a.units_of_blocks, row.num_blocks - 1))
                            : b.ranks - 1);
  }
  __device__ __forceinline__ bool owns_tokens() const { return row.rank == b.ranks - 1; }
  __device__ __forceinline__ bool owns_selected() const {
    return row.rank == row.newest_owner(b.a, kWarpTile);
  }

  /// Eight columns from `column` on, rotated as the new token `token` is.
  __device__ __forceinline__ uint4 rotated(const uint4& x, int column, int token) const {
    const float2* const angles = b.cos_sin() + token * (DK / 2);
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack(words[i], T{}), angle = angles[column / 2 + i];
      out[i] = pack<T>(two.x * angle.x - two.y * angle.y, two.x * angle.y + two.y * angle.x);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
  }

  __device__ __forceinline__ void make_cos_sin(const Token& token) const {
    const auto put = [&](int of_token, int pair, double half_turn) {
      double sine, cosine;
      // In half turns: reduced without the slow path for large angles, which needs a stack.
      sincospi((row.first_new() + of_token) * half_turn, &sine, &cosine);
      b.cos_sin()[of_token * (DK / 2) + pair] =
          make_float2(static_cast<float>(cosine), static_cast<float>(sine));
    };
    if (threadIdx.x < DK / 2) put(row.token, threadIdx.x, token.half_turn);
#pragma unroll 1
    for (int i = threadIdx.x; i < row.token * (DK / 2); i += b.threads)
      put(i / (DK / 2), i % (DK / 2), p.append.half_turns[i % (DK / 2)]);
    __syncthreads();
  }

  /// Queries by way of shared memory into registers; the new token into the caches.
  __device__ __forceinline__ void run(const Token& token, uint32_t (&q)[DK / 16][4]) const {
    if (threadIdx.x == b.threads - 1) open_inboxes(b);  // a warp that has none
    const int thread = anew(threadIdx.x);  // what is computed from it is computed here, and not
                                           // before the first copies
    if (rotates()) make_cos_sin(token);
    const uint32_t staged = shared_address(b.scores());
#pragma unroll
    for (int i = 0; i < Token::kMostQueries; ++i) {
      const int piece = thread + i * b.threads, head = piece / Token::kQueryPieces,
                column = piece % Token::kQueryPieces * 8;
      if (head >= kMostHeads) break;
      uint4 x = token.queries[i];
      if (rotates()) x = rotated(x, column, row.token);
      if (p.q_rotated != nullptr && row.rank == 0 && head < b.group)
        *reinterpret_cast<uint4*>(static_cast<T*>(p.q_rotated) + (b.first_head() + head) * DK +
                                  column) = x;
      store_shared(staged + Tiles::template offset<DK>(head, column / 8), x);
    }
    if (p.appends) {
      const bool source = owns_source();
      append(token, source);
      append_earlier(source);
      if (source && row.makes_block(b.a)) {
        __syncthreads();
        emit();
      }
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < DK / 16; ++c)
      load_matrices(q[c], staged + Tiles::template offset<DK>(b.lane % 16, c * 2 + b.lane / 16));
    __syncthreads();  // scores come into this place,
    if (b.a.plan.unit_sums && row.unit0(b.a) == 0 && threadIdx.x < b.group) {
      b.carries()[threadIdx.x * b.a.plan.tile_stride] = 0.f;  // no unit before
      b.references()[threadIdx.x * b.a.plan.tile_stride] = 0.f;
    }
    cluster_arrive();  // those of other ranks too
  }

  /// The new token into the caches, a piece of 16 bytes a thread. That of the window is kept for
  /// the warp that attends it, too.
  __device__ __forceinline__ void append(const Token& token, bool source) const {
    const Piece piece = Token::own();
    const int cache = piece.cache;
    if (cache > 2 || !(cache == 2 ? source : cache == 1 ? owns_tokens() : owns_selected())) return;
    uint4 values =
        Token::kValuesEarly ? token.values : ask(piece.template of<T>(b.a, row, row.token));
    values = put(piece, row.token, values);
    if (cache == 1) b.new_row()[threadIdx.x % Token::kPieces] = values;
  }

  /// Of the new tokens before this row's what this rank may read. Their own rows write them, too,
  /// with the same bits: so no row waits for another.
  __device__ __forceinline__ void append_earlier(bool source) const {
    const bool makes_block = source && row.makes_block(b.a);
#pragma unroll 1
    for (int i = threadIdx.x; i < row.token * 3 * Piece::kPieces; i += b.threads) {
      const int token = i / (3 * Piece::kPieces);
      const Piece piece(i - token * 3 * Piece::kPieces);
      if (piece.cache == 1 && !owns_tokens()) continue;
      if (piece.cache == 2 && !makes_block) continue;
      put(piece, token, ask(piece.template of<T>(b.a, row, token)));
    }
  }

  /// A piece of a new token into its cache, rotated; returns that.
  __device__ __forceinline__ uint4 put(const Piece& piece, int token, uint4 values) const {
    const int cache = piece.cache, t = row.first_new() + token;
    const bool key = piece.key;
    const DecodeAppend& x = p.append;
    const int64_t to_row = cache == 0 ? row.page_row(p.selected, b.a.selected_page, t)
                           : cache == 1
                               ? row.sequence * p.window.num_slots + remainder(b.a.slots, t)
                               : row.sequence * x.source.num_slots + remainder(b.a.source_slots, t);
    void* const to = cache == 0   ? (key ? p.selected.k : p.selected.v)
                     : cache == 1 ? (key ? p.window.k : p.window.v)
                                  : (key ? x.source.k : x.source.v);
    if (key && rotates() && (cache != 2 || x.rotate_source))
      values = rotated(values, piece.column, token);
    *reinterpret_cast<uint4*>(static_cast<T*>(to) +
                              (to_row * p.num_kv_heads + row.kv_head) * (key ? DK : DV) +
                              piece.column) = values;
    return values;
  }

  /// The mean of l tokens of the source, the last one new, becomes the newest compressed block.
  __device__ __forceinline__ void emit() const {
    const RingKv& source = p.append.source;
    const int since = row.since_block(b.a);
    const int t =
        anew(row.t - since);  // few steps come here: nothing of this is computed elsewhere
    const int64_t block = row.page_row(p.compressed, b.a.compressed_page, row.num_blocks - 1);
    for (int i = threadIdx.x; i < (DK + DV) / 2; i += b.threads) {
      const bool key = i < DK / 2;
      const int width = key ? DK : DV, column = 2 * (key ? i : i - DK / 2);
      const T* from = static_cast<const T*>(key ? source.k : source.v) + column;
      const float count = static_cast<float>(p.block_size);
      float2 sum = make_float2(0.f, 0.f);
#pragma unroll 8
      for (int token = t + 1 - p.block_size; token <= t; ++token) {
        const int64_t at = row.sequence * source.num_slots + remainder(b.a.source_slots, token);
        const float2 two = unpack(
            *reinterpret_cast<const uint32_t*>(from + (at * p.num_kv_heads + row.kv_head) * width),
            T{});
        sum.x += two.x, sum.y += two.y;
      }
      T* to = static_cast<T*>(key ? p.compressed.k : p.compressed.v) + column;
      *reinterpret_cast<uint32_t*>(to + (block * p.num_kv_heads + row.kv_head) * width) =
          pack<T>(sum.x / count, sum.y / count);
    }
    if (threadIdx.x == 0 && since == 0 && p.append.emission_reads != nullptr)
      p.append.emission_reads[row.sequence * p.num_kv_heads + row.kv_head] += p.block_size;
  }
};

/// The gates of this group's heads. One warp.
template <typename Block>
__device__ __forceinline__ void activate_gates(const Block& b) {
  using T = typename Block::Element;
  const DecodeAttention& p = b.p;
  const int head = b.lane;
  if (head >= b.group) return;
  const int of = quotient(b.a.heads_of_gate, b.row.kv_head * b.group + head);
  const int64_t place = (int64_t(b.row.batch) * p.gate_heads + of) * 3;
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
    b.shared.gates[head][i] = x[i];
    if (p.gates != nullptr && b.row.rank == 0) p.gates[place + i] = x[i];  // equal for its heads
  }
}

}  // namespace nsa::kernels::portable
