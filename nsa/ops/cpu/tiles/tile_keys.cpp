#include "nsa/ops/cpu/tiles/tile_keys.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nsa::cpu {
namespace {

/// Bits of keys [begin, end) of a call that lie in `panel`.
uint64_t keys_between(int64_t begin, int64_t end, int64_t panel) {
  const int64_t first = std::max<int64_t>(0, begin - panel * kPanelKeys);
  const int64_t last = std::min(kPanelKeys, end - panel * kPanelKeys);
  if (first >= last) return 0;
  const uint64_t below = last == kPanelKeys ? kAllKeys : (uint64_t{1} << last) - 1;
  return below & (kAllKeys << first);
}

}  // namespace

AttendedKeys::AttendedKeys(const KeyMask& mask, int64_t keys)
    : kind(mask.kind),
      first_position(mask.first_position),
      extent(mask.extent),
      stride(mask.stride),
      num_keys(keys) {
  if (kind != KeyMask::kRanges) return;
  ranges = mask.ranges.const_data_ptr<int32_t>();
  num_queries = mask.ranges.size(1);
  num_kv_heads = mask.ranges.size(2);
  width = mask.ranges.size(3);
}

AttendedKeys::Span AttendedKeys::span(int64_t query) const {
  const int64_t t = first_position + query;
  if (kind == KeyMask::kWindow)
    return {std::max<int64_t>(0, t + 1 - extent), std::min(num_keys, t + 1)};
  if (t + 1 < extent) return {0, 0};
  return {0, std::min(num_keys, (t + 1 - extent) / stride + 1)};
}

AttendedKeys::Span AttendedKeys::reach(int64_t first_query, int64_t count) const {
  const int64_t last = first_query + count - 1;
  if (kind == KeyMask::kRanges) return {0, std::min(num_keys, first_position + last + 1)};
  const Span first_span = span(first_query), last_span = span(last);
  return {std::min(first_span.begin, last_span.end), last_span.end};
}

int64_t AttendedKeys::most_keys() const {
  if (kind == KeyMask::kVisibleBlocks) return num_keys;
  return std::min(num_keys, kind == KeyMask::kWindow ? extent : width * kPanelKeys);
}

void TileKeys::find(const AttendedKeys& attended, int64_t b, int64_t kv_head, int64_t first_query,
                    int64_t num_queries) {
  queries_.clear();
  keys_.clear();
  panels_.clear();
  if (attended.kind == KeyMask::kRanges) {
    find_ranges(attended, b, kv_head, first_query, num_queries);
  } else {
    find_spans(attended, first_query, num_queries);
  }
  int64_t start = 0;
  for (Panel& panel : panels_) {  // the vectors have stopped to grow
    panel.queries = queries_.data() + start;
    panel.keys = keys_.data() + start;
    start += panel.count;
  }
}

void TileKeys::find_spans(const AttendedKeys& attended, int64_t first_query, int64_t num_queries) {
  // Both ends of a span rise with the query.
  const int64_t begin = attended.span(first_query).begin / kPanelKeys;
  const int64_t end = attended.span(first_query + num_queries - 1).end;
  for (int64_t panel = begin; panel * kPanelKeys < end; ++panel) {
    const size_t before = queries_.size();
    for (int64_t query = 0; query < num_queries; ++query) {
      const AttendedKeys::Span span = attended.span(first_query + query);
      const uint64_t keys = keys_between(span.begin, span.end, panel);
      if (keys == 0) continue;
      queries_.push_back(static_cast<int32_t>(query));
      keys_.push_back(keys);
    }
    const auto count = static_cast<int64_t>(queries_.size() - before);
    if (count > 0) panels_.push_back({panel, count, nullptr, nullptr});
  }
}

void TileKeys::find_ranges(const AttendedKeys& attended, int64_t b, int64_t kv_head,
                           int64_t first_query, int64_t num_queries) {
  pieces_.clear();
  for (int64_t query = 0; query < num_queries; ++query) {
    const int64_t row =
        (b * attended.num_queries + first_query + query) * attended.num_kv_heads + kv_head;
    const int32_t* ranges = attended.ranges + row * attended.width * 2;
    const int64_t limit =
        std::min(attended.num_keys, attended.first_position + first_query + query + 1);
    for (int64_t i = 0; i < attended.width; ++i) {
      const int64_t begin = std::max<int64_t>(0, ranges[2 * i]);
      add_interval(begin, std::min<int64_t>(limit, ranges[2 * i + 1]), static_cast<int32_t>(query));
    }
  }
  sort_pieces();
}

void TileKeys::add_interval(int64_t begin, int64_t end, int32_t query) {
  if (begin >= end) return;
  for (int64_t panel = begin / kPanelKeys; panel * kPanelKeys < end; ++panel)
    pieces_.push_back({panel, query, keys_between(begin, end, panel)});
}

/// Sorts by panel, stable, and joins the pieces of a query: they follow one another.
void TileKeys::sort_pieces() {
  int64_t most = -1;
  for (const Piece& piece : pieces_) most = std::max(most, piece.panel);
  starts_.assign(static_cast<size_t>(most + 2), 0);
  for (const Piece& piece : pieces_) ++starts_[static_cast<size_t>(piece.panel + 1)];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<Piece> sorted(pieces_.size());
  for (const Piece& piece : pieces_)
    sorted[static_cast<size_t>(starts_[static_cast<size_t>(piece.panel)]++)] = piece;
  for (const Piece& piece : sorted) {
    if (panels_.empty() || panels_.back().panel != piece.panel)
      panels_.push_back({piece.panel, 0, nullptr, nullptr});
    Panel& panel = panels_.back();
    if (panel.count > 0 && queries_.back() == piece.query) {
      keys_.back() |= piece.keys;
      continue;
    }
    queries_.push_back(piece.query);
    keys_.push_back(piece.keys);
    ++panel.count;
  }
}

}  // namespace nsa::cpu
