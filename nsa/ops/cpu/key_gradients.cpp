#include "nsa/ops/cpu/key_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/ops/cpu/task_queue.h"

namespace nsa::cpu {

KeyGradients::KeyGradients(const AttendedKeys& attended, const Sizes& sizes,
                           int64_t queries_of_tile)
    : sizes_(sizes) {
  const int64_t tiles = (sizes.num_queries + queries_of_tile - 1) / queries_of_tile;
  const int64_t wanted =
      std::clamp((kRangesOfCall + sizes.matrices() - 1) / sizes.matrices(), int64_t{1}, tiles);
  const int64_t length = (tiles + wanted - 1) / wanted * queries_of_tile;
  ranges_of_matrix_ = (sizes.num_queries + length - 1) / length;
  int64_t place = 0;
  for (int64_t matrix = 0; matrix < sizes.matrices(); ++matrix) {
    for (int64_t first = 0; first < sizes.num_queries; first += length) {
      const int64_t count = std::min(length, sizes.num_queries - first);
      const AttendedKeys::Span span = attended.reach(first, count);
      const int64_t first_panel = span.begin / kPanelKeys;
      const int64_t panels = (span.end + kPanelKeys - 1) / kPanelKeys - first_panel;
      ranges_.push_back({matrix, first, count, first_panel, panels, place});
      place += panels;
    }
  }
  const auto options = at::TensorOptions().dtype(at::kFloat);
  keys_ = at::empty({place, kPanelKeys * sizes.dk_row}, options);
  values_ = at::empty({place, kPanelKeys * sizes.dv_row}, options);
}

float* KeyGradients::keys(const Range& range, int64_t panel) const {
  return keys_.mutable_data_ptr<float>() +
         (range.place + panel - range.first_panel) * kPanelKeys * sizes_.dk_row;
}

float* KeyGradients::values(const Range& range, int64_t panel) const {
  return values_.mutable_data_ptr<float>() +
         (range.place + panel - range.first_panel) * kPanelKeys * sizes_.dv_row;
}

void KeyGradients::clear(const Range& range) const {
  const int64_t rows = range.num_panels * kPanelKeys;
  std::fill_n(keys(range, range.first_panel), rows * sizes_.dk_row, 0.0F);
  std::fill_n(values(range, range.first_panel), rows * sizes_.dv_row, 0.0F);
}

void KeyGradients::store(const at::Tensor& d_k, const at::Tensor& d_v) const {
  const HeadRows k_rows(d_k), v_rows(d_v);
  run_tasks(sizes_.matrices() * sizes_.panels, [&] {
    const auto values = static_cast<size_t>(kPanelKeys * std::max(sizes_.dk_row, sizes_.dv_row));
    return [&, sum = std::vector<float>(values)](int64_t task) mutable {
      store_panel(task / sizes_.panels, task % sizes_.panels, k_rows, v_rows, sum.data());
    };
  });
}

void KeyGradients::store_panel(int64_t matrix, int64_t panel, const HeadRows& d_k,
                               const HeadRows& d_v, float* sum) const {
  const int64_t b = matrix / sizes_.num_kv_heads, head = matrix % sizes_.num_kv_heads;
  const int64_t token = panel * kPanelKeys;
  const int64_t count = std::min(kPanelKeys, sizes_.num_keys - token);
  const Range* ranges = ranges_.data() + matrix * ranges_of_matrix_;
  const auto add_up = [&](const auto& part_of, int64_t row, const HeadRows& out) {
    std::fill_n(sum, kPanelKeys * row, 0.0F);
    for (int64_t i = 0; i < ranges_of_matrix_; ++i) {
      if (panel < ranges[i].first_panel || panel >= ranges[i].first_panel + ranges[i].num_panels)
        continue;
      const float* part = part_of(ranges[i]);
      for (int64_t e = 0; e < kPanelKeys * row; ++e) sum[e] += part[e];
    }
    out.write(b, token, count, head, 1, sum, row);
  };
  add_up([&](const Range& range) { return keys(range, panel); }, sizes_.dk_row, d_k);
  add_up([&](const Range& range) { return values(range, panel); }, sizes_.dv_row, d_v);
}

}  // namespace nsa::cpu
