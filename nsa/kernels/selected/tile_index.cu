#include "nsa/kernels/selected/tile_index.h"

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/selected/rows/row_attention.cuh"

namespace nsa::kernels::portable {
namespace {

constexpr int kScanThreads = 1024;
constexpr int kListThreads = 512;

struct IndexArguments {
  RowArguments rows;
  SelectedPlan plan;
  int num_kv_heads;
  int64_t tokens_of_batch;
  bool without_dense_tiles;
  int32_t *counts, *offsets, *next_items, *row_tiles, *row_counts, *first_item;
  uint64_t* row_masks;
  uint32_t* entries;
  SelectedItem* items;
};

/// Keys [start, end) of the tile that begins at `first` as bits.
__device__ uint64_t bits_of(int start, int end, int first) {
  const int low = max(start - first, 0), high = min(end - first, kKeysOfTile);
  if (high <= low) return 0;
  const uint64_t below = high == kKeysOfTile ? ~0ull : (1ull << high) - 1;
  return below & (~0ull << low);
}

/// Element `run` of what has one for each run of a row; lanes may ask for different ones.
template <int kHalves>
__device__ __forceinline__ int of_run(const int (&x)[kHalves], int run) {
  int found = __shfl_sync(~0u, x[0], run % 32);
#pragma unroll
  for (int h = 1; h < kHalves; ++h) {
    const int other = __shfl_sync(~0u, x[h], run % 32);
    if (run / 32 == h) found = other;
  }
  return found;
}

/// `row` counts rows of ranges.
template <int kHalves>
__device__ RowRuns<kHalves> runs_of_row(const RowArguments& a, int64_t row, int position) {
  const int2* ranges = reinterpret_cast<const int2*>(a.ranges) + row * a.num_ranges;
  const int limit = min(position + 1, a.num_keys);
  RowRuns<kHalves> runs;
  return runs.take_ordered(ranges, a.num_ranges, limit)
             ? runs
             : RowRuns<kHalves>::of(ranges, a.num_ranges, limit);
}

/// Of a row by one warp: its tiles, ascending, with the keys it attends of each; adds one to the
/// counter of each tile. kHalves: of RowRuns.
template <int kHalves>
__device__ __forceinline__ void list_row(const IndexArguments& a, int head_index, int token,
                                         int* counts) {
  const int lane = threadIdx.x % 32, most = a.plan.max_tiles_of_row;
  const int64_t batch = head_index / a.num_kv_heads, head = head_index % a.num_kv_heads,
                row = (batch * a.rows.num_queries + token) * a.num_kv_heads + head;
  const auto runs =
      runs_of_row<kHalves>(a.rows, (batch * a.tokens_of_batch + token) * a.num_kv_heads + head,
                           a.rows.first_position + token);
  // Runs are disjoint and ascending, but two may meet the same tile: it belongs to the first.
  int last[kHalves], until[kHalves];  // a run's last tile; tiles of all runs up to this one
  int reached_before = -1, wanted = 0;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const bool used = runs.end[h] > runs.start[h];
    last[h] = used ? (runs.end[h] - 1) / kKeysOfTile : -1;
    const int reached = max(most_of_lanes(last[h]), reached_before),
              left = __shfl_up_sync(~0u, reached, 1);
    int first = max(runs.start[h] / kKeysOfTile, (lane == 0 ? reached_before : left) + 1);
    reached_before = __shfl_sync(~0u, reached, 31);
    if (a.without_dense_tiles) {
      first = max(first, 1);
      last[h] = min(last[h], first_dense_tile(a.rows.first_position + token) - 1);
    }
    until[h] = wanted + sum_of_lanes(used ? max(0, last[h] - first + 1) : 0);
    wanted = __shfl_sync(~0u, until[h], 31);
  }
  const int count = wanted > most ? 0 : wanted;
  if (lane == 0) a.row_counts[row] = wanted > most ? -1 : wanted;
  for (int base = 0; base < most; base += 32) {
    const int place = base + lane;
    const bool valid = place < count;
    int source = 0;
#pragma unroll
    for (int step = 16 * kHalves; step > 0; step /= 2)
      if (of_run<kHalves>(until, source + step - 1) <= place) source += step;
    source = min(source, 32 * kHalves - 1);
    const int tile = of_run<kHalves>(last, source) - (of_run<kHalves>(until, source) - 1 - place);
    const int first_key = tile * kKeysOfTile;
    uint64_t mask = 0;
    for (bool more = true; __any_sync(~0u, more && valid); ++source) {
      const int run = source % (32 * kHalves), start = of_run<kHalves>(runs.start, run),
                end = of_run<kHalves>(runs.end, run);
      if (source < 32 * kHalves && more) mask |= bits_of(start, end, first_key);
      more = source < 32 * kHalves - 1 && start < first_key + kKeysOfTile;
    }
    if (place >= most) continue;
    a.row_tiles[row * most + place] = valid ? tile * 2 + (mask == ~0ull ? 0 : 1) : -1;
    a.row_masks[row * most + place] = mask;
    if (valid) atomicAdd(counts + tile, 1);
  }
}

/// One block a (head, chunk), one warp a row: lists of the rows, and the tiles' counts.
template <int kHalves>
__global__ void __launch_bounds__(kListThreads)
    list_tiles(const __grid_constant__ IndexArguments a) {
  int* const counts = reinterpret_cast<int*>(dynamic_shared());
  const int tiles = a.plan.tiles, chunk = blockIdx.x, head_index = blockIdx.y;
  for (int i = threadIdx.x; i < tiles; i += kListThreads) counts[i] = 0;
  __syncthreads();
  const int first = chunk * a.plan.chunk_tokens,
            end = min(first + a.plan.chunk_tokens, a.rows.num_queries);
  for (int token = first + threadIdx.x / 32; token < end; token += kListThreads / 32)
    list_row<kHalves>(a, head_index, token, counts);
  __syncthreads();
  int32_t* const to = a.counts + (int64_t(head_index) * a.plan.chunks + chunk) * tiles;
  for (int i = threadIdx.x; i < tiles; i += kListThreads) to[i] = counts[i];
}

/// Sum of `value` over the threads before this one; `total` over all.
__device__ int scan_block(int value, int& total) {
  __shared__ int sums[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int until = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(~0u, until, step);
    if (lane >= step) until += before;
  }
  __syncthreads();
  if (lane == 31) sums[warp] = until;
  __syncthreads();
  int before_warp = 0;
  total = 0;
  for (int i = 0; i < kScanThreads / 32; ++i) {
    if (i < warp) before_warp += sums[i];
    total += sums[i];
  }
  return before_warp + until - value;
}

/// Counts of a head -> where each chunk's part of a tile's list begins, of the chunks from `first`
/// to `last`, the end of the last one included.
__device__ void scan_counts(const IndexArguments& a, int head_index, int first, int last) {
  const int tiles = a.plan.tiles, chunks = a.plan.chunks;
  const int32_t* __restrict__ counts = a.counts + int64_t(head_index) * chunks * tiles;
  int32_t* __restrict__ offsets = a.offsets + int64_t(head_index) * (chunks + 1) * tiles;
  int done = 0;
  for (int base = 0; base < tiles; base += kScanThreads) {
    const int tile = base + threadIdx.x;
    int before = 0, own = 0, after = 0, total = 0;  // rows of the chunks, seen from first to last
    if (tile < tiles) {
      const auto sum = [&](int from, int to) {
        int found = 0;
#pragma unroll 16
        for (int c = from; c < to; ++c) found += __ldg(counts + int64_t(c) * tiles + tile);
        return found;
      };
      before = sum(0, first), own = sum(first, last), after = sum(last, chunks);
    }
    int next = done + scan_block(before + own + after, total) + before;
    done += total;
    if (tile >= tiles) continue;
#pragma unroll 16
    for (int c = first; c < last; ++c) {
      offsets[int64_t(c) * tiles + tile] = next;
      next += __ldg(counts + int64_t(c) * tiles + tile);
    }
    offsets[int64_t(last) * tiles + tile] = next;
  }
  __syncthreads();
}

/// Places of items by class, so that CTAs take the classes one after the other; which CTA takes an
/// item changes no bit.
struct ItemClasses {
  static constexpr int kPlaces = 16, kLengths = 48, kCount = kPlaces + kLengths;
  int next[kCount];

  /// Whole pieces by the place of their tokens in the set, so that rows of the tokens that CTAs
  /// read at a time stay in the L2 cache; then what is left of lists, the longest first, so that
  /// all SMs end at about the same time.
  __device__ static int of(int piece, int pieces, int count, int most) {
    return count == most ? piece * kPlaces / pieces : kPlaces + (most - count) * kLengths / most;
  }
  /// Numbers of items become first places; all threads.
  __device__ void scan() {
    __syncthreads();
    if (threadIdx.x == 0) {
      int done = 0;
      for (int& one : next) {
        const int count = one;
        one = done;
        done += count;
      }
    }
    __syncthreads();
  }
};

/// Finds where the lists of a (head of a set, set) begin and cuts them into work items.
__global__ void __launch_bounds__(kScanThreads, 1)
    cut_lists(const __grid_constant__ IndexArguments a) {
  const SelectedPlan& plan = a.plan;
  const int set = blockIdx.y, tiles = plan.tiles;
  const int head_index = set / plan.chunk_sets * plan.heads_of_set + blockIdx.x;
  const int64_t place = int64_t(set) * plan.heads_of_set + blockIdx.x;
  int32_t* first_item = a.first_item + place * (tiles + 1);
  SelectedItem* items = a.items + place * plan.items_of_head;
  const int begin_chunk = set % plan.chunk_sets * plan.chunks_of_set,
            end_chunk = min(begin_chunk + plan.chunks_of_set, plan.chunks);
  const bool exists = head_index < plan.heads;
  const int32_t* offsets = a.offsets + int64_t(head_index) * (plan.chunks + 1) * tiles;
  const int most = plan.pairs_of_item;
  const int strides = (tiles + kScanThreads - 1) / kScanThreads;  // over the tiles of a stripe
  // Of the thread's i-th list: visit(tile, begin, end, pieces).
  const auto visit_list = [&](int i, auto&& visit) {
    const int chunk = begin_chunk + i / strides * plan.stripe_chunks;
    const int tile = i % strides * kScanThreads + threadIdx.x;
    const bool valid = exists && tile < tiles && chunk < end_chunk;
    const int begin = valid ? offsets[int64_t(chunk) * tiles + tile] : 0;
    const int end =
        valid ? offsets[int64_t(min(chunk + plan.stripe_chunks, end_chunk)) * tiles + tile] : 0;
    visit(tile, begin, end, (end - begin + most - 1) / most);
  };
  __shared__ ItemClasses classes;
  if (threadIdx.x < ItemClasses::kCount) classes.next[threadIdx.x] = 0;
  if (threadIdx.x == 0 && blockIdx.x == 0) a.next_items[set] = 0;
  if (exists) scan_counts(a, head_index, begin_chunk, end_chunk);
  int done = 0;
  for (int i = 0; i < plan.stripes * strides; ++i)
    visit_list(i, [&](int tile, int begin, int end, int pieces) {
      int total = 0;
      const int first = done + scan_block(pieces, total);
      done += total;
      if (tile < tiles) first_item[tile] = first;
      for (int j = 0; j < pieces; ++j) {
        const int from = begin + j * most, count = min(most, end - from);
        if (plan.long_items_first) {
          atomicAdd(&classes.next[ItemClasses::of(j, pieces, count, most)], 1);
        } else {
          items[first + j] = {tile, from, count, first + j};
        }
      }
    });
  if (threadIdx.x == 0) first_item[tiles] = done;
  if (!plan.long_items_first) return;
  classes.scan();
  for (int i = 0; i < strides; ++i)  // one stripe
    visit_list(i, [&](int tile, int begin, int end, int pieces) {
      for (int j = 0; j < pieces; ++j) {
        const int from = begin + j * most, count = min(most, end - from);
        items[atomicAdd(&classes.next[ItemClasses::of(j, pieces, count, most)], 1)] = {
            tile, from, count, first_item[tile] + j};
      }
    });
}

/// One warp a (head, chunk) walks its tokens in order, so that lists are ascending.
__global__ void __launch_bounds__(32) scatter_rows(const __grid_constant__ IndexArguments a) {
  int* const next = reinterpret_cast<int*>(dynamic_shared());
  const int tiles = a.plan.tiles, most = a.plan.max_tiles_of_row, chunk = blockIdx.x,
            head_index = blockIdx.y;
  const int32_t* begin = a.offsets + (int64_t(head_index) * (a.plan.chunks + 1) + chunk) * tiles;
  for (int i = threadIdx.x; i < tiles; i += 32) next[i] = begin[i];
  __syncwarp();
  const int first = chunk * a.plan.chunk_tokens,
            end = min(first + a.plan.chunk_tokens, a.rows.num_queries);
  const int strips = (most + 31) / 32, steps = (end - first) * strips;
  const int64_t batch = head_index / a.num_kv_heads, head = head_index % a.num_kv_heads;
  uint32_t* entries = a.entries + int64_t(head_index) * a.rows.num_queries * most;
  constexpr int kAhead = 8;
  for (int step = 0; step < steps; step += kAhead) {
    int found[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int token = first + (step + i) / strips, place = (step + i) % strips * 32 + threadIdx.x;
      const int64_t row = (batch * a.rows.num_queries + token) * a.num_kv_heads + head;
      found[i] = step + i < steps && place < most ? a.row_tiles[row * most + place] : -1;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int token = first + (step + i) / strips, place = (step + i) % strips * 32 + threadIdx.x;
      if (found[i] >= 0) {  // tiles of a row differ: no two lanes share a counter
        const uint32_t whole = found[i] % 2 == 0 ? 1u << 7 : 0u;
        entries[next[found[i] / 2]++] = uint32_t(token) << 8 | whole | uint32_t(place);
      }
      __syncwarp();
    }
  }
}

}  // namespace

cudaError_t build_tile_index(const TokenRanges& p, const SelectedPlan& plan, void* workspace,
                             cudaStream_t stream) {
  const auto at = [&](size_t offset) { return static_cast<char*>(workspace) + offset; };
  IndexArguments a{};
  a.rows.ranges = p.ranges;
  a.rows.num_queries = p.num_queries;
  a.rows.num_keys = p.num_keys;
  a.rows.num_ranges = p.num_ranges;
  a.rows.first_position = p.first_position;
  a.plan = plan;
  a.num_kv_heads = p.num_kv_heads;
  a.tokens_of_batch = p.tokens_of_batch;
  a.without_dense_tiles = p.without_dense_tiles;
  a.counts = reinterpret_cast<int32_t*>(at(plan.counts));
  a.offsets = reinterpret_cast<int32_t*>(at(plan.offsets));
  a.next_items = reinterpret_cast<int32_t*>(at(plan.next_items));
  a.row_tiles = reinterpret_cast<int32_t*>(at(plan.row_tiles));
  a.row_counts = reinterpret_cast<int32_t*>(at(plan.row_counts));
  a.first_item = reinterpret_cast<int32_t*>(at(plan.first_item));
  a.row_masks = reinterpret_cast<uint64_t*>(at(plan.row_masks));
  a.entries = reinterpret_cast<uint32_t*>(at(plan.entries));
  a.items = reinterpret_cast<SelectedItem*>(at(plan.items));
  const dim3 chunks(plan.chunks, plan.heads);
  const size_t shared = size_t(plan.tiles) * 4;
  cudaError_t status = launch(p.num_ranges <= 32 ? list_tiles<1> : list_tiles<2>, chunks,
                              kListThreads, shared, stream, a);
  if (status == cudaSuccess)
    status = launch(cut_lists, dim3(plan.heads_of_set, plan.sets()), kScanThreads, 0, stream, a);
  if (status != cudaSuccess) return status;
  return launch(scatter_rows, chunks, 32, shared, stream, a);
}

}  // namespace nsa::kernels::portable
