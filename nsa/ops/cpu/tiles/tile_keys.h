#pragma once
#include <cstdint>
#include <vector>

#include "nsa/ops/attention/key_mask.h"
#include "nsa/ops/cpu/inner_loops/kernel_table.h"

namespace nsa::cpu {

/// Which keys the queries of a call attend: KeyMask on pointers.
struct AttendedKeys {
  /// `mask`.ranges must be contiguous; it and the mask must live on.
  AttendedKeys(const KeyMask& mask, int64_t num_keys);

  /// kWindow and kVisibleBlocks: keys [begin, end) of a query.
  struct Span {
    int64_t begin, end;
  };
  Span span(int64_t query) const;
  /// Every kind: keys that `count` queries can attend lie in it.
  Span reach(int64_t first_query, int64_t count) const;

  /// Bounds the keys of a query where its ranges are of blocks of kPanelKeys at most.
  int64_t most_keys() const;

  KeyMask::Kind kind;
  int64_t first_position, extent, stride, num_keys;
  const int32_t* ranges = nullptr;  ///< kRanges: [B, S, Hkv, width, 2]
  int64_t num_queries = 0, num_kv_heads = 0, width = 0;
};

/// What a tile of queries of one (b, KV head) attends, by panels of keys in ascending order: for
/// each the queries that attend it, ascending, with their keys in it.
class TileKeys {
 public:
  struct Panel {
    int64_t panel;
    int64_t count;
    const int32_t* queries;  ///< [count] counted from the tile's first
    const uint64_t* keys;    ///< [count], none 0
  };

  void find(const AttendedKeys& attended, int64_t b, int64_t kv_head, int64_t first_query,
            int64_t num_queries);
  const std::vector<Panel>& panels() const { return panels_; }

 private:
  struct Piece {
    int64_t panel;
    int32_t query;
    uint64_t keys;
  };

  void find_spans(const AttendedKeys& attended, int64_t first_query, int64_t num_queries);
  void find_ranges(const AttendedKeys& attended, int64_t b, int64_t kv_head, int64_t first_query,
                   int64_t num_queries);
  void add_interval(int64_t begin, int64_t end, int32_t query);
  void sort_pieces();

  std::vector<Piece> pieces_;
  std::vector<int64_t> starts_;  ///< by panel
  std::vector<int32_t> queries_;
  std::vector<uint64_t> keys_;
  std::vector<Panel> panels_;
};

}  // namespace nsa::cpu
