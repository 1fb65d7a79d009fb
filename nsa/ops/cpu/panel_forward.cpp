// The forward pass of all branches: a tile of queries meets one panel of keys after the other.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "nsa/ops/cpu/panel_attention.h"
#include "nsa/ops/cpu/softmax_rows.h"
#include "nsa/ops/cpu/task_queue.h"
#include "nsa/ops/cpu/tiles/query_tile.h"

namespace nsa::cpu {
namespace {

/// Rows of a tile: enough that queries which chose the same block meet its keys together.
constexpr int64_t kForwardTileRows = 768;

class ForwardTile {
 public:
  ForwardTile(const Sizes& sizes, const KeyPanels& panels, const HeadRows& q, const HeadRows& v,
              const AttendedKeys& attended, float scale, const PanelAttention& result)
      : sizes_(sizes),
        panels_(panels),
        q_(q),
        v_(v),
        attended_(attended),
        scale_(scale),
        result_(result),
        table_(kernel_table()) {
    const auto rows = static_cast<size_t>(queries_of_tile(kForwardTileRows, sizes) * sizes.group);
    const auto step = static_cast<size_t>(step_rows(sizes));
    const auto dk = static_cast<size_t>(sizes.dk_row), dv = static_cast<size_t>(sizes.dv_row);
    q_rows_.resize(rows * dk);
    out_.resize(rows * dv);
    peak_.resize(rows);
    sum_.resize(rows);
    gathered_.resize(step * dk);
    logits_.resize(step * kPanelKeys);
    part_.resize(step * dv);
    decay_.resize(step);
  }

  void run(const QueryTile& tile) {
    const auto rows = static_cast<size_t>(tile.num_queries * sizes_.group);
    q_.read(tile.b, tile.first_query, tile.num_queries, tile.first_head(sizes_), sizes_.group,
            q_rows_.data(), sizes_.dk_row);
    std::fill_n(out_.begin(), rows * static_cast<size_t>(sizes_.dv_row), 0.0F);
    std::fill_n(peak_.begin(), rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_.begin(), rows, 0.0F);
    attends_.assign(static_cast<size_t>(tile.num_queries), false);
    keys_.find(attended_, tile.b, tile.kv_head, tile.first_query, tile.num_queries);
    for (const TileKeys::Panel& panel : keys_.panels()) {
      for (int64_t i = 0; i < panel.count; ++i)
        attends_[static_cast<size_t>(panel.queries[i])] = true;
      for_steps(panel, sizes_.group,
                [&](const PanelRows& rows_of_step) { attend(tile, panel.panel, rows_of_step); });
    }
    store(tile);
  }

 private:
  void attend(const QueryTile& tile, int64_t panel, const PanelRows& rows) {
    const int64_t matrix = tile.matrix(sizes_), count = rows.count * sizes_.group;
    const float* q = gather_rows(rows, q_rows_.data(), sizes_.dk_row, gathered_.data());
    table_.multiply({count, kPanelKeys, sizes_.dk, q, sizes_.dk_row, 1,
                     panels_.keys_by_dim(matrix, panel), kPanelKeys, logits_.data(), kPanelKeys,
                     false});
    table_.running_softmax(
        {rows, scale_, logits_.data(), peak_.data(), sum_.data(), decay_.data()});
    table_.multiply({count, sizes_.dv_row, kPanelKeys, logits_.data(), kPanelKeys, 1,
                     panels_.values(matrix, panel), sizes_.dv_row, part_.data(), sizes_.dv_row,
                     false});
    table_.update_rows({rows, decay_.data(), part_.data(), out_.data(), sizes_.dv_row});
    const uint64_t bad = panels_.non_finite_values(matrix, panel);
    if (bad != 0)
      add_non_finite({rows, logits_.data(), kPanelKeys, bad, panel * kPanelKeys}, v_, tile.b,
                     tile.kv_head, sizes_, out_.data());
  }

  void store(const QueryTile& tile) {
    for (int64_t row = 0; row < tile.num_queries * sizes_.group; ++row) {
      const int64_t query = row / sizes_.group, head = row % sizes_.group;
      finish_row({peak_[static_cast<size_t>(row)], sum_[static_cast<size_t>(row)]},
                 attends_[static_cast<size_t>(query)], out_.data() + row * sizes_.dv_row, sizes_.dv,
                 RowResult(result_, sizes_, tile.b, tile.first_query + query,
                           tile.first_head(sizes_) + head));
    }
  }

  const Sizes& sizes_;
  const KeyPanels& panels_;
  const HeadRows &q_, &v_;
  const AttendedKeys& attended_;
  float scale_;
  const PanelAttention& result_;
  const KernelTable& table_;
  TileKeys keys_;
  std::vector<bool> attends_;
  std::vector<float> q_rows_, out_, peak_, sum_, gathered_, logits_, part_, decay_;
};

}  // namespace

PanelAttention attend_panels(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const KeyMask& mask, double scale) {
  const Sizes sizes(q, k, v);
  const PanelAttention result = empty_attention(q, v);
  if (result.lse.numel() == 0) return result;
  const KeyPanels panels(k, v, sizes, /*backward=*/false);
  const HeadRows q_rows(q), v_rows(v);
  const AttendedKeys attended(mask, sizes.num_keys);
  const int64_t per_tile = queries_of_tile(kForwardTileRows, sizes);
  const int64_t tiles = (sizes.num_queries + per_tile - 1) / per_tile;
  run_tasks(sizes.matrices() * tiles, [&] {
    return [&, worker = ForwardTile(sizes, panels, q_rows, v_rows, attended,
                                    static_cast<float>(scale), result)](int64_t task) mutable {
      const int64_t matrix = task % sizes.matrices();
      const int64_t first = (tiles - 1 - task / sizes.matrices()) * per_tile;  // longest first
      worker.run({matrix / sizes.num_kv_heads, matrix % sizes.num_kv_heads, first,
                  std::min(per_tile, sizes.num_queries - first)});
    };
  });
  return result;
}

}  // namespace nsa::cpu
