#include "nsa/reference/passes/rows.h"

#include <algorithm>

#include "nsa/reference/stages/rope.h"

namespace nsa::reference {
namespace {

const Given kNothingGiven;

std::vector<int32_t> copied(std::span<const int32_t> row) { return {row.begin(), row.end()}; }

}  // namespace

Rows::Rows(const Config& config, const Inputs& inputs) : Rows(config, inputs, kNothingGiven) {}

Rows::Rows(const Config& config, const Inputs& inputs, const Given& given)
    : config_(config), inputs_(inputs), given_(given) {
  if (inputs.q.defined())
    check_inputs(config, inputs);
  else
    check_keys(config, inputs);
  check_given(config, inputs, given);
  if (config.rope != Rope::kNone)
    frequency_ = rope_frequencies(config.qk_head_dim, config.rope_base);
}

void Rows::check_row(int64_t b, int64_t t, int64_t kv_head) const {
  const Shape limits = {inputs_.k_sel.size(0), inputs_.k_sel.size(1), config_.num_kv_heads};
  if (!(0 <= b && b < limits[0] && 0 <= t && t < limits[1] && 0 <= kv_head && kv_head < limits[2]))
    reject("Rows", "row (b, t, kv_head)", "inside " + to_string(limits),
           to_string({b, t, kv_head}));
}

RowResult Rows::evaluate(int64_t b, int64_t kv_head, const RowQuery& query) {
  check_row(b, query.t, kv_head);
  const auto values = static_cast<size_t>(config_.group_size() * config_.qk_head_dim);
  if (query.q.size() != values)
    reject("Rows", "q of a row", std::to_string(values) + " values",
           std::to_string(query.q.size()));
  require_shape("Rows", "gates of a row", query.gates, {config_.group_size(), 3});
  return evaluate_row(config_, query, sources(b, kv_head));
}

RowResult Rows::evaluate(int64_t b, int64_t t, int64_t kv_head) {
  const Config& c = config_;
  check_row(b, t, kv_head);
  if (!inputs_.q.defined()) reject("Rows", "q", "[B,S,Hq,dk]", "nothing");
  const Tensor<double>& q = given_.q_rot.defined() ? given_.q_rot : inputs_.q;
  const std::span<const double> group = queries_of_row(c, q, b, t, kv_head);
  std::vector<double> rotated_q(group.begin(), group.end());
  const auto dk = static_cast<size_t>(c.qk_head_dim);
  for (size_t begin = 0; !given_.q_rot.defined() && begin < rotated_q.size(); begin += dk)
    rotate(std::span(rotated_q).subspan(begin, dk), t, frequency_, config_.rope_pairs);

  RowQuery query{.t = t, .q = rotated_q, .gates = gates_of_row(c, inputs_.gates, b, t, kv_head)};
  if (given_.block_idx.defined()) query.block_idx = copied(given_.block_idx.row(b, t, kv_head));
  if (given_.ranges.defined()) query.ranges = copied(given_.ranges.row(b, t, kv_head));
  return evaluate_row(c, query, sources(b, kv_head));
}

RowSources Rows::sources(int64_t b, int64_t kv_head) {
  const auto cmp = [this, b, kv_head](int64_t block) {
    return KeyValue{given_.k_cmp.defined() ? given_.k_cmp.row(b, block, kv_head)
                                           : compressed(true, b, block, kv_head),
                    given_.v_cmp.defined() ? given_.v_cmp.row(b, block, kv_head)
                                           : compressed(false, b, block, kv_head)};
  };
  const auto sel = [this, b, kv_head](int64_t t) {
    return KeyValue{given_.k_sel_rot.defined() ? given_.k_sel_rot.row(b, t, kv_head)
                                               : rotated(inputs_.k_sel, k_sel_, b, t, kv_head),
                    inputs_.v_sel.row(b, t, kv_head)};
  };
  const auto win = [this, b, kv_head](int64_t t) {
    return KeyValue{given_.k_win_rot.defined() ? given_.k_win_rot.row(b, t, kv_head)
                                               : rotated(inputs_.k_win, k_win_, b, t, kv_head),
                    inputs_.v_win.row(b, t, kv_head)};
  };
  return {KeyValueSource(cmp), KeyValueSource(sel), KeyValueSource(win)};
}

std::span<const double> Rows::rotated(const Tensor<double>& k, Cache& cache, int64_t b, int64_t t,
                                      int64_t kv_head) {
  const int64_t id = (b * k.size(1) + t) * k.size(2) + kv_head;
  const auto found = cache.find(id);
  if (found != cache.end()) return found->second;
  const auto row = k.row(b, t, kv_head);
  std::vector<double> key(row.begin(), row.end());
  rotate(key, t, frequency_, config_.rope_pairs);
  return cache.emplace(id, std::move(key)).first->second;
}

std::span<const double> Rows::compressed(bool key, int64_t b, int64_t block, int64_t kv_head) {
  const Tensor<double>& source = key ? inputs_.k_cmp_src : inputs_.v_cmp_src;
  Cache& cache = key ? k_cmp_ : v_cmp_;
  const int64_t id = (b * source.size(1) + block) * source.size(2) + kv_head;
  const auto found = cache.find(id);
  if (found != cache.end()) return found->second;

  std::vector<std::vector<double>> rows;
  for (int64_t j = 0; j < config_.block_size; ++j) {
    const int64_t t = block * config_.block_stride + j;
    const auto row = source.row(b, t, kv_head);
    rows.emplace_back(row.begin(), row.end());
    if (key && config_.rope == Rope::kBeforePool)
      rotate(rows.back(), t, frequency_, config_.rope_pairs);
  }
  std::vector<double> pooled =
      pool(config_.phi, key ? inputs_.phi_k : inputs_.phi_v, BlockTokens(rows.begin(), rows.end()));
  if (key) key_after_pool(config_, pooled, block);
  return cache.emplace(id, std::move(pooled)).first->second;
}

}  // namespace nsa::reference
