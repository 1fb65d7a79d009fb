// The compressed branch with the choice of blocks: whole rows of logits of a small tile of queries,
// from which probabilities, scores and the top n follow without a second product.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "nsa/ops/cpu/choose_blocks.h"
#include "nsa/ops/cpu/panel_attention.h"
#include "nsa/ops/cpu/row_scores.h"
#include "nsa/ops/cpu/softmax_rows.h"
#include "nsa/ops/cpu/task_queue.h"
#include "nsa/ops/cpu/tiles/query_tile.h"
#include "nsa/ops/select/ranges_loop.h"

namespace nsa::cpu {
namespace {

/// Logits of a tile, in values: they stay in the second-level cache.
constexpr int64_t kTileLogits = int64_t{1} << 17;
/// Rows that make good use of a panel of keys, and rows beyond which nothing is gained.
constexpr int64_t kFewestSelectionRows = 24, kMostSelectionRows = 96;

struct SelectionCall {
  const Sizes& sizes;
  const KeyPanels& panels;
  const HeadRows &q, &v;
  const AttendedKeys& visible;
  const NsaConfig& config;
  float scale;
  const PanelSelection& result;
};

int64_t selection_queries(const Sizes& sizes) {
  const int64_t rows = kTileLogits / std::max<int64_t>(1, sizes.panels * kPanelKeys);
  return queries_of_tile(std::clamp(rows, kFewestSelectionRows, kMostSelectionRows), sizes);
}

class SelectionTile {
 public:
  explicit SelectionTile(const SelectionCall& call)
      : call_(call),
        sizes_(call.sizes),
        table_(kernel_table()),
        choice_(call.config),
        scores_(call.config, call.visible.first_position + sizes_.num_queries - 1,
                sizes_.num_keys) {
    const auto rows = static_cast<size_t>(selection_queries(sizes_) * sizes_.group);
    // The rows of a tile start in different sets of the cache.
    row_ = sizes_.panels * kPanelKeys + kRowMultiple;
    q_rows_.resize(rows * static_cast<size_t>(sizes_.dk_row));
    out_.resize(rows * static_cast<size_t>(sizes_.dv_row));
    logits_.resize(rows * static_cast<size_t>(row_));
    sums_.resize(rows);
    inverse_.resize(static_cast<size_t>(sizes_.group));
  }

  void run(const QueryTile& tile) {
    call_.q.read(tile.b, tile.first_query, tile.num_queries, tile.first_head(sizes_), sizes_.group,
                 q_rows_.data(), sizes_.dk_row);
    const int64_t keys = visible_at(tile, tile.num_queries - 1);
    const int64_t panels = (keys + kPanelKeys - 1) / kPanelKeys;
    find_weights(tile, panels);
    add_values(tile, panels);
    for (int64_t query = 0; query < tile.num_queries; ++query) {
      store_rows(tile, query);
      select(tile, query);
    }
  }

 private:
  int64_t visible_at(const QueryTile& tile, int64_t query) const {
    return call_.visible.span(tile.first_query + query).end;
  }
  int64_t position(const QueryTile& tile, int64_t query) const {
    return call_.visible.first_position + tile.first_query + query;
  }
  void find_weights(const QueryTile& tile, int64_t panels) {
    const int64_t rows = tile.num_queries * sizes_.group;
    for (int64_t panel = 0; panel < panels; ++panel)
      table_.multiply({rows, kPanelKeys, sizes_.dk, q_rows_.data(), sizes_.dk_row, 1,
                       call_.panels.keys_by_dim(tile.matrix(sizes_), panel), kPanelKeys,
                       logits_.data() + panel * kPanelKeys, row_, false});
    for (int64_t row = 0; row < rows; ++row)
      sums_[static_cast<size_t>(row)] =
          table_.whole_softmax({logits_.data() + row * row_, visible_at(tile, row / sizes_.group),
                                panels * kPanelKeys, call_.scale});
  }

  void add_values(const QueryTile& tile, int64_t panels) {
    const int64_t rows = tile.num_queries * sizes_.group;
    std::fill_n(out_.begin(), rows * sizes_.dv_row, 0.0F);
    uint64_t bad = 0;
    for (int64_t panel = 0; panel < panels; ++panel) {
      table_.multiply({rows, sizes_.dv_row, kPanelKeys, logits_.data() + panel * kPanelKeys, row_,
                       1, call_.panels.values(tile.matrix(sizes_), panel), sizes_.dv_row,
                       out_.data(), sizes_.dv_row, true});
      bad |= call_.panels.non_finite_values(tile.matrix(sizes_), panel);
    }
    if (bad != 0) add_non_finite_values(tile);
  }

  void add_non_finite_values(const QueryTile& tile) {
    keys_.find(call_.visible, tile.b, tile.kv_head, tile.first_query, tile.num_queries);
    for (const TileKeys::Panel& p : keys_.panels()) {
      const uint64_t bad = call_.panels.non_finite_values(tile.matrix(sizes_), p.panel);
      for (int64_t i = 0; i < p.count; ++i) {
        const float* weights = logits_.data() + p.queries[i] * sizes_.group * row_;
        add_non_finite({{1, sizes_.group, p.queries + i, p.keys + i},
                        weights + p.panel * kPanelKeys,
                        row_,
                        bad,
                        p.panel * kPanelKeys},
                       call_.v, tile.b, tile.kv_head, sizes_, out_.data());
      }
    }
  }

  void store_rows(const QueryTile& tile, int64_t query) {
    for (int64_t head = 0; head < sizes_.group; ++head) {
      const int64_t row = query * sizes_.group + head;
      finish_row(sums_[static_cast<size_t>(row)], visible_at(tile, query) > 0,
                 out_.data() + row * sizes_.dv_row, sizes_.dv,
                 RowResult(call_.result.attention, sizes_, tile.b, tile.first_query + query,
                           tile.first_head(sizes_) + head));
    }
  }

  void select(const QueryTile& tile, int64_t query) {
    const int64_t t = position(tile, query), size = call_.config.sel_block_size;
    const int64_t current = t / size, n = call_.config.top_n;
    const float* scores = current >= n ? find_scores(tile, query) : nullptr;
    const int64_t token = tile.b * sizes_.num_queries + tile.first_query + query;
    const int64_t place = (token * sizes_.num_kv_heads + tile.kv_head) * n;
    int32_t* ids = call_.result.block_idx.mutable_data_ptr<int32_t>() + place;
    choice_.choose(scores, current, ids);
    write_row_ranges(ids, n, t, size, call_.result.ranges.mutable_data_ptr<int32_t>() + 2 * place);
  }

  const float* find_scores(const QueryTile& tile, int64_t query) {
    for (int64_t head = 0; head < sizes_.group; ++head) {
      inverse_[static_cast<size_t>(head)] =
          RowResult(call_.result.attention, sizes_, tile.b, tile.first_query + query,
                    tile.first_head(sizes_) + head)
              .softmax->inverse;
    }
    return scores_.find(logits_.data() + query * sizes_.group * row_, row_, inverse_,
                        visible_at(tile, query), position(tile, query));
  }

  const SelectionCall& call_;
  const Sizes& sizes_;
  const KernelTable& table_;
  BlockChoice choice_;
  RowScores scores_;
  TileKeys keys_;
  int64_t row_;
  std::vector<SoftmaxSums> sums_;
  std::vector<float> q_rows_, out_, logits_, inverse_;
};

}  // namespace

PanelSelection attend_and_select(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const NsaConfig& config, int64_t first_position, double scale) {
  const Sizes sizes(q, k, v);
  const auto ints = q.options().dtype(at::kInt);
  const PanelSelection result{empty_attention(q, v),
                              at::empty({q.size(0), q.size(1), k.size(2), config.top_n}, ints),
                              at::empty({q.size(0), q.size(1), k.size(2), config.top_n, 2}, ints)};
  if (result.attention.lse.numel() == 0) return result;
  const KeyPanels panels(k, v, sizes, /*backward=*/false);
  const HeadRows q_rows(q), v_rows(v);
  const KeyMask mask{
      KeyMask::kVisibleBlocks, first_position, config.block_size, config.block_stride, {}};
  const AttendedKeys visible(mask, sizes.num_keys);
  const SelectionCall call{
      sizes, panels, q_rows, v_rows, visible, config, static_cast<float>(scale), result};
  const int64_t per_tile = selection_queries(sizes);
  const int64_t tiles = (sizes.num_queries + per_tile - 1) / per_tile;
  run_tasks(sizes.matrices() * tiles, [&] {
    return [&, worker = SelectionTile(call)](int64_t task) mutable {
      const int64_t matrix = task % sizes.matrices();
      const int64_t first = (tiles - 1 - task / sizes.matrices()) * per_tile;  // longest first
      worker.run({matrix / sizes.num_kv_heads, matrix % sizes.num_kv_heads, first,
                  std::min(per_tile, sizes.num_queries - first)});
    };
  });
  return result;
}

}  // namespace nsa::cpu
