#include "nsa/kernels/selected/selected_plan.h"

#include <algorithm>
#include <numeric>

#include "nsa/kernels/common/ceil_div.h"

namespace nsa::kernels {
namespace {

constexpr int64_t kMaxChunks = 256;
constexpr int64_t kLeastChunkTokens = 32;
constexpr int64_t kLeastPartBytes = int64_t{768} << 20;
constexpr int64_t kMostPartBytes = int64_t{32} << 30;  // 16-byte pieces are counted in 31 bits
constexpr int64_t kRowsOfItem = 4096, kLeastRowsOfItem = 512;
constexpr int64_t kStripeBytes = int64_t{16} << 20;  // a third of the L2 cache
constexpr int64_t kItemsWanted = 132 * 6;
constexpr int64_t kLeastDenseRows = 132 * 64;  // fewer leave half of the SMs idle

/// Bytes that parts of out or d_q may take: they and the index stay below half of q, k, v and the
/// output, except for small problems.
int64_t part_budget(const SelectedSizes& s) {
  const int64_t queries = int64_t{s.batch} * s.num_queries * s.num_kv_heads * s.group_size,
                keys = int64_t{s.batch} * s.num_keys * s.num_kv_heads;
  const int64_t tensors = (queries + keys) * (s.qk_head_dim + s.v_head_dim) * 2;
  const int64_t index = int64_t{s.batch} * s.num_queries * s.num_kv_heads * s.max_tiles_of_row * 16;
  return std::clamp(tensors * 35 / 100 - index, kLeastPartBytes, kMostPartBytes);
}

/// Columns of a part of a row.
int part_columns(const SelectedSizes& s) {
  return s.pass == SelectedPass::kForward ? s.v_head_dim : s.qk_head_dim;
}

void cut_sets(SelectedPlan& p, const SelectedSizes& s) {
  const int64_t bytes_of_token = int64_t{s.max_tiles_of_row} * s.group_size * part_columns(s) * 2;
  const int64_t budget = part_budget(s), bytes_of_head = bytes_of_token * p.chunks * p.chunk_tokens;
  p.heads_of_set = static_cast<int>(std::clamp<int64_t>(budget / bytes_of_head, 1, p.heads));
  const int64_t chunks = budget / (bytes_of_token * p.chunk_tokens);
  const int64_t most = std::clamp<int64_t>(chunks, 1, p.chunks);
  p.chunk_sets = p.heads_of_set > 1 ? 1 : static_cast<int>(ceil_div(p.chunks, most));
  p.chunks_of_set = static_cast<int>(ceil_div(p.chunks, p.chunk_sets));
  p.chunk_sets = static_cast<int>(ceil_div(p.chunks, p.chunks_of_set));
  p.head_sets = static_cast<int>(ceil_div(p.heads, p.heads_of_set));
  p.heads_of_set = static_cast<int>(ceil_div(p.heads, p.head_sets));
}

/// Forward: tokens whose rows of Q stay in the L2 cache while all their tiles are computed. The
/// backward pass needs the items of a tile together.
void cut_stripes(SelectedPlan& p, const SelectedSizes& s) {
  const int64_t bytes_of_token = int64_t{s.group_size} * s.qk_head_dim * 2;
  const int64_t chunks = kStripeBytes / (bytes_of_token * p.chunk_tokens);
  p.stripe_chunks = s.pass == SelectedPass::kBackward
                        ? p.chunks_of_set
                        : static_cast<int>(std::clamp<int64_t>(chunks, 1, p.chunks_of_set));
  p.stripes = static_cast<int>(ceil_div(p.chunks_of_set, p.stripe_chunks));
}

void cut_items(SelectedPlan& p, const SelectedSizes& s) {
  const int64_t pairs = int64_t{p.tokens_of_set()} * s.max_tiles_of_row;
  const int64_t rows = std::clamp(pairs * p.heads_of_set * s.group_size / kItemsWanted,
                                  kLeastRowsOfItem, kRowsOfItem);
  const int64_t whole = 64 / std::gcd(64, s.group_size);  // pairs that fill tiles of 64 rows
  p.pairs_of_item = static_cast<int>(ceil_div(ceil_div(rows, s.group_size), whole) * whole);
  p.long_items_first = s.pass == SelectedPass::kBackward;
  p.items_of_head =
      static_cast<int>(int64_t{p.tiles} * p.stripes + ceil_div(pairs, p.pairs_of_item));
}

}  // namespace

SelectedPlan plan_selected(const SelectedSizes& s) {
  SelectedPlan p{};
  p.heads = s.batch * s.num_kv_heads;
  p.tiles = static_cast<int>(ceil_div(s.num_keys, kKeysOfTile));
  p.max_tiles_of_row = s.max_tiles_of_row;
  p.chunk_tokens =
      static_cast<int>(std::max(kLeastChunkTokens, ceil_div(s.num_queries, kMaxChunks)));
  p.chunks = static_cast<int>(ceil_div(s.num_queries, p.chunk_tokens));
  cut_sets(p, s);
  cut_stripes(p, s);
  cut_items(p, s);
  const size_t rows = size_t(p.heads) * s.num_queries, pairs = rows * p.max_tiles_of_row;
  const size_t tile = size_t(kKeysOfTile) * (s.qk_head_dim + s.v_head_dim) * 4;
  const size_t heads = p.heads_of_set, sets = p.sets();
  const size_t parts = heads * p.tokens_of_set() * p.max_tiles_of_row * s.group_size;
  const size_t blocks_of_parts = (parts + 7) / 8;  // of 8 rows, as selected/parts.cuh has them
  const bool backward = s.pass == SelectedPass::kBackward;
  size_t end = 0;
  const auto place = [&](size_t& offset, size_t bytes) {
    offset = end;
    end += (bytes + 255) / 256 * 256;
  };
  place(p.counts, size_t(p.heads) * p.chunks * p.tiles * 4);
  place(p.offsets, size_t(p.heads) * (p.chunks + 1) * p.tiles * 4);
  place(p.next_items, sets * 4);
  place(p.row_tiles, pairs * 4);
  place(p.row_masks, pairs * 8);
  place(p.row_counts, rows * 4);
  place(p.entries, pairs * 4);
  place(p.items, sets * heads * p.items_of_head * sizeof(SelectedItem));
  place(p.first_item, sets * heads * (p.tiles + 1) * 4);
  place(p.parts, blocks_of_parts * 8 * part_columns(s) * 2);
  place(p.part_stats, backward ? 0 : parts * 8);
  place(p.slots, backward ? heads * p.items_of_head * tile : 0);
  place(p.sums, backward && p.chunk_sets > 1 ? heads * p.tiles * tile : 0);
  p.bytes = end;
  return p;
}

int most_dense_queries(const SelectedSizes& s, int first_position, int block_size) {
  if (block_size < 1 || block_size % kKeysOfTile != 0 || first_position < 0) return 0;
  const bool forward = s.pass == SelectedPass::kForward;
  if (!forward && s.num_keys < 1) return 0;
  const int positions = forward ? kDensePositions : kDenseBackwardPositions;
  return std::clamp(positions - first_position, 0, s.num_queries);
}

int dense_queries(const SelectedSizes& s, int first_position, int block_size) {
  const int64_t attended = int64_t{s.max_tiles_of_row} * kKeysOfTile;
  const int most = most_dense_queries(s, first_position, block_size);
  const bool forward = s.pass == SelectedPass::kForward;
  // Measured: in the backward pass the index, parts and their sums, which the order of keys has
  // besides its products, pay from a position on where a row attends two fifths of the keys.
  if (!forward && most == s.num_queries && first_position + s.num_queries <= attended * 5 / 2)
    return most;
  // Forward, a key of a whole tile costs about a third of what an attended one costs in the order
  // of keys, a quarter where no index has to be built then; backward, where that order runs for
  // later queries anyway, four fifths.
  const bool no_index = most == s.num_queries && first_position + s.num_queries <= attended * 4;
  // A window that joins costs hardly anything there: fitted to paper 4k.
  const int64_t window = std::min<int64_t>(s.window, attended) * 7 / 5;
  const int64_t reach =
      (forward ? attended * (no_index ? 4 : 3) : (attended + window) * 5 / 4) - first_position;
  const int queries = static_cast<int>(std::clamp<int64_t>(reach, 0, most));
  if (forward && queries < s.num_queries && !prefer_order_of_keys(s, block_size)) return 0;
  const int64_t rows = int64_t{s.batch} * queries * s.num_kv_heads * s.group_size;
  return rows < kLeastDenseRows ? 0 : queries;
}

bool prefer_order_of_keys(const SelectedSizes& s, int block_size) {
  const int64_t pairs =
      int64_t{s.batch} * s.num_queries * s.num_kv_heads * std::max(s.max_tiles_of_row, 0);
  const int64_t columns = s.qk_head_dim + s.v_head_dim;
  // The order of rows reads the keys and values of every (row, tile) pair, at about 7 TB/s; the
  // order of keys has an index to build, which takes as long as 1 GiB of that.
  if (block_size < 1 || block_size >= kKeysOfTile || kKeysOfTile % block_size != 0)
    return pairs * kKeysOfTile * columns * 2 > int64_t{1} << 30;
  // A pair is a part of a tile: fitted to the table of NOTEBOOK.md, in ns. The order of rows takes
  // as long as 8 keys longer for a pair, the order of keys for each head of the group.
  const double key = 2e-4 * columns, head = key * (5.6 - .0088 * columns);
  return pairs * key * (.85 * block_size + 8) > 5e3 + pairs * head * s.group_size;
}

const char* unsupported_index(const SelectedSizes& s) {
  if (s.max_tiles_of_row < 1) return "no bound on the key tiles of a row";
  if (s.max_tiles_of_row > kMaxTilesOfRow) return "more than 128 key tiles a row";
  if (s.num_queries > kMaxTokens || s.num_keys / kKeysOfTile >= kMaxTiles ||
      int64_t{s.num_queries} * s.max_tiles_of_row > INT32_MAX)
    return "more tokens than an entry of the inverse index counts";
  if (int64_t{s.batch} * s.num_kv_heads > 65535) return "more than 65535 KV heads of a batch";
  return nullptr;
}

}  // namespace nsa::kernels
