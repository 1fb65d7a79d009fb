// The backward pass of all branches: a tile of queries meets one panel of keys after the other;
// five products a panel, as probabilities are computed again.
#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/ops/cpu/key_gradients.h"
#include "nsa/ops/cpu/panel_attention.h"
#include "nsa/ops/cpu/task_queue.h"
#include "nsa/ops/cpu/tiles/query_tile.h"

namespace nsa::cpu {
namespace {

/// Rows of a tile: many share the panels that they meet, few leave their probabilities in cache.
constexpr int64_t kFewestGradientRows = 48, kMostGradientRows = 384;
/// Probabilities that a tile keeps.
constexpr int64_t kTileProbabilities = int64_t{1} << 19;

int64_t gradient_queries(const AttendedKeys& attended, const Sizes& sizes) {
  const int64_t rows = kTileProbabilities / std::max<int64_t>(1, attended.most_keys());
  return queries_of_tile(std::clamp(rows, kFewestGradientRows, kMostGradientRows), sizes);
}

struct BackwardCall {
  const Sizes& sizes;
  const KeyPanels& panels;
  const AttendedKeys& attended;
  const at::Tensor& softmax;
  const at::Tensor& d_lse;  ///< contiguous or undefined
  float scale;
  HeadRows q, d_out, d_q;
  const KeyGradients& key_gradients;
};

class BackwardTile {
 public:
  explicit BackwardTile(const BackwardCall& call)
      : call_(call), sizes_(call.sizes), table_(kernel_table()) {
    const auto rows = static_cast<size_t>(gradient_queries(call.attended, sizes_) * sizes_.group);
    const auto step = static_cast<size_t>(step_rows(sizes_));
    const auto dk = static_cast<size_t>(sizes_.dk_row), dv = static_cast<size_t>(sizes_.dv_row);
    for (std::vector<float>* x : {&q_, &d_q_}) x->resize(rows * dk);
    d_out_.resize(rows * dv);
    softmax_.resize(rows);
    delta_.resize(rows);
    for (std::vector<float>* x : {&step_q_, &step_d_q_}) x->resize(step * dk);
    step_d_out_.resize(step * dv);
  }

  void run(const QueryTile& tile, const KeyGradients::Range& range) {
    read(tile);
    keys_.find(call_.attended, tile.b, tile.kv_head, tile.first_query, tile.num_queries);
    int64_t met = 0;
    for (const TileKeys::Panel& panel : keys_.panels()) met += panel.count;
    const auto values = static_cast<size_t>(met * sizes_.group * kPanelKeys);
    if (p_.size() < values) p_.resize(values), d_.resize(values);
    for_all_steps([&](int64_t panel, const PanelRows& rows, int64_t place) {
      find_probabilities(tile.matrix(sizes_), panel, rows, place);
    });
    std::fill_n(d_q_.begin(), tile.num_queries * sizes_.group * sizes_.dk_row, 0.0F);
    for_all_steps([&](int64_t panel, const PanelRows& rows, int64_t place) {
      add_gradients(tile.matrix(sizes_), panel, rows, place, range);
    });
    call_.d_q.write(tile.b, tile.first_query, tile.num_queries, tile.first_head(sizes_),
                    sizes_.group, d_q_.data(), sizes_.dk_row);
  }

 private:
  /// step(panel, rows, where its values are in p_ and d_)
  template <typename Step>
  void for_all_steps(const Step& step) const {
    int64_t place = 0;
    for (const TileKeys::Panel& panel : keys_.panels())
      for_steps(panel, sizes_.group, [&](const PanelRows& rows) {
        step(panel.panel, rows, place);
        place += rows.count * sizes_.group * kPanelKeys;
      });
  }

  void read(const QueryTile& tile) {
    const auto rows = [&](const HeadRows& x, std::vector<float>& to, int64_t row) {
      x.read(tile.b, tile.first_query, tile.num_queries, tile.first_head(sizes_), sizes_.group,
             to.data(), row);
    };
    rows(call_.q, q_, sizes_.dk_row);
    rows(call_.d_out, d_out_, sizes_.dv_row);
    // Gradients of keys are products over all queries of a step: one that is not finite must not
    // reach keys that it does not attend.
    finite_q_ = q_;
    has_non_finite_q_ = clear_non_finite(finite_q_.data(), static_cast<int64_t>(q_.size()));
    const auto* softmax =
        reinterpret_cast<const RowSoftmax*>(call_.softmax.const_data_ptr<float>());
    for (int64_t row = 0; row < tile.num_queries * sizes_.group; ++row) {
      const int64_t token = tile.b * sizes_.num_queries + tile.first_query + row / sizes_.group;
      const int64_t place =
          token * sizes_.group * sizes_.num_kv_heads + tile.first_head(sizes_) + row % sizes_.group;
      const auto i = static_cast<size_t>(row);
      softmax_[i] = softmax[place];
      delta_[i] = call_.d_lse.defined() ? -call_.d_lse.const_data_ptr<float>()[place] : 0.0F;
    }
  }

  void find_probabilities(int64_t matrix, int64_t panel, const PanelRows& rows, int64_t place) {
    const int64_t count = rows.count * sizes_.group, dk = sizes_.dk_row, dv = sizes_.dv_row;
    float *p = p_.data() + place, *d = d_.data() + place;
    table_.multiply({count, kPanelKeys, sizes_.dk, gather_rows(rows, q_.data(), dk, step_q_.data()),
                     dk, 1, call_.panels.keys_by_dim(matrix, panel), kPanelKeys, p, kPanelKeys,
                     false});
    table_.multiply({count, kPanelKeys, sizes_.dv,
                     gather_rows(rows, d_out_.data(), dv, step_d_out_.data()), dv, 1,
                     call_.panels.values_by_dim(matrix, panel), kPanelKeys, d, kPanelKeys, false});
    table_.probabilities({rows, call_.scale, p, d, softmax_.data(), delta_.data()});
  }

  void add_gradients(int64_t matrix, int64_t panel, const PanelRows& rows, int64_t place,
                     const KeyGradients::Range& range) {
    const int64_t count = rows.count * sizes_.group, dk = sizes_.dk_row, dv = sizes_.dv_row;
    const float* p = p_.data() + place;
    float* d = d_.data() + place;
    const float* q =
        gather_rows(rows, has_non_finite_q_ ? finite_q_.data() : q_.data(), dk, step_q_.data());
    const float* d_out = gather_rows(rows, d_out_.data(), dv, step_d_out_.data());
    table_.logit_gradients({rows, call_.scale, p, d, delta_.data()});
    table_.multiply({kPanelKeys, dv, count, p, 1, kPanelKeys, d_out, dv,
                     call_.key_gradients.values(range, panel), dv, true});
    table_.multiply({kPanelKeys, dk, count, d, 1, kPanelKeys, q, dk,
                     call_.key_gradients.keys(range, panel), dk, true});
    table_.multiply({count, dk, kPanelKeys, d, kPanelKeys, 1, call_.panels.keys(matrix, panel), dk,
                     step_d_q_.data(), dk, false});
    table_.update_rows({rows, nullptr, step_d_q_.data(), d_q_.data(), dk});
  }

  const BackwardCall& call_;
  const Sizes& sizes_;
  const KernelTable& table_;
  TileKeys keys_;
  bool has_non_finite_q_ = false;
  std::vector<RowSoftmax> softmax_;
  std::vector<float> q_, finite_q_, d_out_, d_q_, delta_;
  std::vector<float> p_, d_;  ///< of all steps, one behind the other
  std::vector<float> step_q_, step_d_out_, step_d_q_;
};

}  // namespace

PanelGradients attend_panels_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& softmax, const at::Tensor& d_out,
                                      const at::Tensor& d_lse, const KeyMask& mask, double scale) {
  const Sizes sizes(q, k, v);
  const auto like = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const PanelGradients result{like(q), like(k), like(v)};
  if (q.numel() == 0 || sizes.num_keys == 0) {
    for (const at::Tensor& x : {result.q, result.k, result.v}) x.zero_();
    return result;
  }
  const KeyPanels panels(k, v, sizes, /*backward=*/true);
  const AttendedKeys attended(mask, sizes.num_keys);
  const int64_t per_tile = gradient_queries(attended, sizes);
  const KeyGradients key_gradients(attended, sizes, per_tile);
  const at::Tensor d_lse_rows = d_lse.defined() ? d_lse.contiguous() : d_lse;
  const BackwardCall call{sizes,        panels,          attended,
                          softmax,      d_lse_rows,      static_cast<float>(scale),
                          HeadRows(q),  HeadRows(d_out), HeadRows(result.q),
                          key_gradients};
  // Ranges of late queries first: they attend most.
  std::vector<KeyGradients::Range> ranges = key_gradients.ranges();
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const auto& a, const auto& b) { return a.first_query > b.first_query; });
  run_tasks(static_cast<int64_t>(ranges.size()), [&] {
    return [&, worker = BackwardTile(call)](int64_t task) mutable {
      const KeyGradients::Range& range = ranges[static_cast<size_t>(task)];
      key_gradients.clear(range);
      for (int64_t first = 0; first < range.num_queries; first += per_tile)
        worker.run({range.matrix / sizes.num_kv_heads, range.matrix % sizes.num_kv_heads,
                    range.first_query + first, std::min(per_tile, range.num_queries - first)},
                   range);
    };
  });
  key_gradients.store(result.k, result.v);
  return result;
}

}  // namespace nsa::cpu
