#pragma once
#include <cstddef>
#include <cstdint>

/// How the selected branch is cut when it is computed in the order of keys, and where its
/// intermediate results lie. Pure functions of sizes.
namespace nsa::kernels {

constexpr int kKeysOfTile = 64;
constexpr int kMaxTilesOfRow = 128;   // 7 bits of an entry
constexpr int kMaxTokens = 1 << 24;   // 24 bits of an entry
constexpr int kMaxTiles = 224 * 256;  // counters of all tiles of a head fit shared memory

/// A row's tiles below this position are the bits of one 64-bit word; in the backward pass the last
/// bit has a meaning of its own.
constexpr int kDensePositions = 64 * kKeysOfTile;
constexpr int kDenseBackwardPositions = 63 * kKeysOfTile;

/// Tiles of 64 keys that nearly every row attends: the first one, and those from here on to the
/// token's own. They are not listed where they are computed in whole tiles.
constexpr int first_dense_tile(int position) { return position / kKeysOfTile - 1; }

enum class SelectedPass { kForward, kBackward };

struct SelectedSizes {
  int batch = 0, num_queries = 0, num_keys = 0, num_kv_heads = 0, group_size = 0;
  int qk_head_dim = 0, v_head_dim = 0, max_tiles_of_row = 0;
  SelectedPass pass = SelectedPass::kBackward;
  int window = 0;  // backward: of a branch that joins whole tiles
};

/// The sizes of a problem of either pass.
template <class Problem>
SelectedSizes selected_sizes(const Problem& p, int max_tiles_of_row, SelectedPass pass) {
  return {p.batch,
          p.num_queries,
          p.num_keys,
          p.num_kv_heads,
          p.num_heads / p.num_kv_heads,
          p.qk_head_dim,
          p.v_head_dim,
          max_tiles_of_row,
          pass};
}

/// A head is a (sequence, KV head) pair. Tokens are cut into chunks for the inverse index; a set of
/// heads_of_set heads and tokens_of_set tokens is computed at a time, so that partial results fit a
/// fixed share of memory.
struct SelectedPlan {
  int heads, tiles, max_tiles_of_row;
  int chunk_tokens, chunks;
  int heads_of_set, chunks_of_set, head_sets, chunk_sets;
  int stripe_chunks, stripes;  // of a set; an item's tokens are of one stripe
  int pairs_of_item;  // a work item is a key tile and at most so many (token, tile) pairs of its
  int items_of_head;  // at most, in one set
  bool long_items_first;  // or in the order of stripes and tiles
  // Offsets of arrays in the workspace, in bytes.
  size_t counts;      // int32 [heads, chunks, tiles] rows of a chunk that attend a tile
  size_t offsets;     // int32 [heads, chunks + 1, tiles] first entry of a chunk in a tile's list
  size_t next_items;  // int32 [sets] items taken
  size_t row_tiles;   // int32 [B, S, Hkv, M] tile * 2 + (1 if only some keys); -1 behind the last
  size_t row_masks;   // uint64 [B, S, Hkv, M] attended keys of the tile
  size_t row_counts;  // int32 [B, S, Hkv] tiles of a row; -1: more than M
  size_t entries;     // uint32 [heads, S * M] token << 8 | whole tile << 7 | place in row_tiles
  size_t items;       // Item [sets, heads_of_set, items_of_head]
  size_t first_item;  // int32 [sets, heads_of_set, tiles + 1] slots; forward: only the last counts
  size_t parts;  // element [heads_of_set, tokens_of_set, M, G, D] parts of d_q (dk) or out (dv),
                 // rows in blocks of 8 (selected/parts.cuh)
  size_t part_stats;  // float2 [heads_of_set, tokens_of_set, M, G] maximum, sum; forward only
  size_t slots;  // float [heads_of_set, items_of_head, 64 * (dk + dv)] parts of d_k, d_v; backward
  size_t sums;   // float [heads_of_set, tiles, 64 * (dk + dv)] when tokens come in sets
  size_t bytes;

  int sets() const { return head_sets * chunk_sets; }
  int tokens_of_set() const { return chunks_of_set * chunk_tokens; }
};

/// A key tile and a piece of its list. Items are in the order in which they are computed; slots
/// in that of tiles and lists.
struct alignas(16) SelectedItem {
  int32_t tile, begin, count, slot;  // begin: in the entries of the head
};

SelectedPlan plan_selected(const SelectedSizes& sizes);

/// How many of the first queries the pass can compute in whole causal tiles under masks.
/// `block_size` as in RowAttention; query i stands at position first_position + i.
int most_dense_queries(const SelectedSizes& sizes, int first_position, int block_size);

/// For how many of them that is faster: those at positions where a row attends a good part of the
/// keys before it.
int dense_queries(const SelectedSizes& sizes, int first_position, int block_size);

/// Whether the forward pass is faster in the order of keys than in that of rows; `block_size` as
/// above.
bool prefer_order_of_keys(const SelectedSizes& sizes, int block_size);

/// nullptr when the inverse index holds these sizes; else why not, for a message.
const char* unsupported_index(const SelectedSizes& sizes);

}  // namespace nsa::kernels
