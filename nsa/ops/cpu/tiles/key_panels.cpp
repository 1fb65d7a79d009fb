#include "nsa/ops/cpu/tiles/key_panels.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "nsa/ops/cpu/task_queue.h"

namespace nsa::cpu {
namespace {

/// rows [64, row] -> columns [dim, 64].
void transpose_panel(const float* rows, int64_t row, int64_t dim, float* columns) {
  for (int64_t e = 0; e < dim; ++e)
    for (int64_t i = 0; i < kPanelKeys; ++i) columns[e * kPanelKeys + i] = rows[i * row + e];
}

float* place(const at::Tensor& x, int64_t matrix, int64_t panel) {
  return x.mutable_data_ptr<float>() + (matrix * x.size(1) + panel) * x.size(2);
}

}  // namespace

Sizes::Sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)
    : batch(q.size(0)),
      num_queries(q.size(1)),
      num_keys(k.size(1)),
      num_kv_heads(k.size(2)),
      group(q.size(2) / std::max<int64_t>(1, k.size(2))),
      dk(q.size(3)),
      dv(v.size(3)),
      dk_row(round_up(q.size(3), kRowMultiple)),
      dv_row(round_up(v.size(3), kRowMultiple)),
      panels((k.size(1) + kPanelKeys - 1) / kPanelKeys) {}

bool clear_non_finite(float* x, int64_t count) {
  // x - x is 0, or NaN where x is not finite.
  float all = 0;
  for (int64_t i = 0; i < count; ++i) all += x[i] - x[i];
  if (all == 0) return false;
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(x[i])) x[i] = 0;
  return true;
}

KeyPanels::KeyPanels(const at::Tensor& k, const at::Tensor& v, const Sizes& sizes, bool backward)
    : sizes_(sizes), backward_(backward) {
  const auto options = k.options().dtype(at::kFloat);
  const auto buffer = [&](int64_t dim) {
    return at::empty({sizes.matrices(), sizes.panels, dim * kPanelKeys}, options);
  };
  keys_by_dim_ = buffer(sizes.dk);
  values_ = buffer(sizes.dv_row);
  if (backward) {
    keys_ = buffer(sizes.dk_row);
    values_by_dim_ = buffer(sizes.dv);
  }
  non_finite_.assign(static_cast<size_t>(sizes.matrices() * sizes.panels), 0);
  const HeadRows k_rows(k), v_rows(v);
  run_tasks(sizes.matrices() * sizes.panels, [&] {
    std::vector<float> rows(static_cast<size_t>(sizes.dk_row * kPanelKeys));
    return [&, rows](int64_t task) mutable {
      pack(k_rows, v_rows, task / sizes.panels, task % sizes.panels, rows.data());
    };
  });
}

void KeyPanels::pack(const HeadRows& k, const HeadRows& v, int64_t matrix, int64_t panel,
                     float* buffer) {
  const int64_t b = matrix / sizes_.num_kv_heads, head = matrix % sizes_.num_kv_heads;
  const int64_t token = panel * kPanelKeys;
  const int64_t count = std::min(kPanelKeys, sizes_.num_keys - token);
  const auto read = [&](const HeadRows& x, float* to, int64_t row) {
    x.read(b, token, count, head, 1, to, row);
    std::fill(to + count * row, to + kPanelKeys * row, 0.0F);
  };
  float* key_rows = backward_ ? place(keys_, matrix, panel) : buffer;
  read(k, key_rows, sizes_.dk_row);
  transpose_panel(key_rows, sizes_.dk_row, sizes_.dk, place(keys_by_dim_, matrix, panel));
  if (backward_) clear_non_finite(key_rows, kPanelKeys * sizes_.dk_row);
  float* value_rows = place(values_, matrix, panel);
  read(v, value_rows, sizes_.dv_row);
  if (backward_)
    transpose_panel(value_rows, sizes_.dv_row, sizes_.dv, place(values_by_dim_, matrix, panel));
  uint64_t bad = 0;
  for (int64_t i = 0; i < count; ++i)
    if (clear_non_finite(value_rows + i * sizes_.dv_row, sizes_.dv_row)) bad |= uint64_t{1} << i;
  non_finite_[static_cast<size_t>(matrix * sizes_.panels + panel)] = bad;
}

const float* KeyPanels::keys_by_dim(int64_t matrix, int64_t panel) const {
  return place(keys_by_dim_, matrix, panel);
}
const float* KeyPanels::values(int64_t matrix, int64_t panel) const {
  return place(values_, matrix, panel);
}
const float* KeyPanels::keys(int64_t matrix, int64_t panel) const {
  return place(keys_, matrix, panel);
}
const float* KeyPanels::values_by_dim(int64_t matrix, int64_t panel) const {
  return place(values_by_dim_, matrix, panel);
}
uint64_t KeyPanels::non_finite_values(int64_t matrix, int64_t panel) const {
  return non_finite_[static_cast<size_t>(matrix * sizes_.panels + panel)];
}

}  // namespace nsa::cpu
