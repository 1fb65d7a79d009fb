#include "nsa/ops/cpu/cached_attention.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/ops/cpu/choose_blocks.h"
#include "nsa/ops/cpu/row_scores.h"
#include "nsa/ops/cpu/softmax_rows.h"
#include "nsa/ops/cpu/task_queue.h"
#include "nsa/ops/cpu/tiles/head_rows.h"
#include "nsa/ops/select/ranges_loop.h"

namespace nsa::cpu {
namespace {

struct Positions {
  int64_t begin, end;
};

class CachedRow {
 public:
  CachedRow(const at::Tensor& q, const NsaConfig& config, const Sizes& sizes,
            const CachedAttention& result)
      : q_(q),
        config_(config),
        sizes_(sizes),
        result_(result),
        table_(kernel_table()),
        choice_(config),
        heads_(round_up(sizes.group, kRowMultiple)) {
    const auto group = static_cast<size_t>(sizes.group);
    q_rows_.resize(group * static_cast<size_t>(sizes.dk_row));
    q_by_dim_.resize(static_cast<size_t>(sizes.dk * heads_));
    rows_.resize(static_cast<size_t>(kPanelKeys * std::max(sizes.dk_row, sizes.dv_row)));
    products_.resize(static_cast<size_t>(kPanelKeys * heads_));
    out_.resize(group * static_cast<size_t>(sizes.dv_row));
    inverse_.resize(group);
  }

  void run(const CachedSequence& sequence, int64_t place, int64_t kv_head) {
    place_ = place, kv_head_ = kv_head;
    read_queries();
    const int64_t n = config_.top_n, t = sequence.t;
    attend(sequence.compressed, {{0, sequence.num_blocks}}, config_.cmp_scale(), result_.cmp, 0);
    const int64_t token = place * sizes_.num_kv_heads + kv_head;
    int32_t* ids = result_.block_idx.mutable_data_ptr<int32_t>() + token * n;
    int32_t* ranges = result_.ranges.mutable_data_ptr<int32_t>() + token * n * 2;
    select(sequence, ids);
    write_row_ranges(ids, n, t, config_.sel_block_size, ranges);
    std::vector<Positions> chosen;
    for (int64_t i = 0; i < n; ++i) chosen.push_back({ranges[2 * i], ranges[2 * i + 1]});
    attend(sequence.selected, chosen, config_.sel_scale(), result_.sel, 1);
    attend(sequence.window, {{std::max<int64_t>(0, t + 1 - config_.window), t + 1}},
           config_.win_scale(), result_.win, 2);
  }

 private:
  /// A column a head: keys then meet all heads in one product.
  void read_queries() {
    HeadRows(q_).read(place_, 0, 1, kv_head_ * sizes_.group, sizes_.group, q_rows_.data(),
                      sizes_.dk_row);
    std::fill(q_by_dim_.begin(), q_by_dim_.end(), 0.0F);
    for (int64_t e = 0; e < sizes_.dk; ++e)
      for (int64_t head = 0; head < sizes_.group; ++head)
        q_by_dim_[static_cast<size_t>(e * heads_ + head)] =
            q_rows_[static_cast<size_t>(head * sizes_.dk_row + e)];
  }

  /// step(first key among all, keys) for pieces of up to kPanelKeys keys, whose rows of x are in
  /// rows_.
  template <typename Step>
  void for_pieces(const CachedKv& cache, const at::Tensor& x, int64_t width,
                  const std::vector<Positions>& positions, const Step& step) {
    const HeadRows rows(x.unsqueeze(0));
    int64_t first = 0;
    for (const Positions& span : positions) {
      for (int64_t at = span.begin, count = 0; at < span.end; at += count, first += count) {
        count = std::min({span.end - at, cache.length - at % cache.length, kPanelKeys});
        rows.read(0, cache.row(at), count, kv_head_, 1, rows_.data(), width);
        step(first, count);
      }
    }
  }

  void attend(const CachedKv& cache, const std::vector<Positions>& positions, double scale,
              const PanelAttention& result, int64_t branch) {
    int64_t keys = 0;
    for (const Positions& span : positions) keys += std::max<int64_t>(0, span.end - span.begin);
    row_ = round_up(keys, kPanelKeys) + kRowMultiple;
    logits_.assign(static_cast<size_t>(sizes_.group * row_), 0.0F);
    int64_t copied = 0;
    for_pieces(cache, cache.k, sizes_.dk_row, positions, [&](int64_t first, int64_t count) {
      table_.multiply({count, heads_, sizes_.dk, rows_.data(), sizes_.dk_row, 1, q_by_dim_.data(),
                       heads_, products_.data(), heads_, false});
      for (int64_t head = 0; head < sizes_.group; ++head)
        for (int64_t i = 0; i < count; ++i)
          logits_[static_cast<size_t>(head * row_ + first + i)] =
              products_[static_cast<size_t>(i * heads_ + head)];
      copied += count;
    });
    result_.reads
        .mutable_data_ptr<int64_t>()[(place_ * sizes_.num_kv_heads + kv_head_) * 3 + branch] =
        copied;
    std::vector<SoftmaxSums> sums;
    for (int64_t head = 0; head < sizes_.group; ++head)
      sums.push_back(table_.whole_softmax({logits_.data() + head * row_, keys,
                                           round_up(keys, kPanelKeys), static_cast<float>(scale)}));
    std::fill(out_.begin(), out_.end(), 0.0F);
    for_pieces(cache, cache.v, sizes_.dv_row, positions, [&](int64_t first, int64_t count) {
      table_.multiply({sizes_.group, sizes_.dv_row, count, logits_.data() + first, row_, 1,
                       rows_.data(), sizes_.dv_row, out_.data(), sizes_.dv_row, true});
    });
    for (int64_t head = 0; head < sizes_.group; ++head) {
      const RowResult to(result, sizes_, place_, 0, kv_head_ * sizes_.group + head);
      finish_row(sums[static_cast<size_t>(head)], keys > 0, out_.data() + head * sizes_.dv_row,
                 sizes_.dv, to);
      inverse_[static_cast<size_t>(head)] = to.softmax->inverse;
    }
  }

  /// After the compressed branch, whose weights and sums are still there.
  void select(const CachedSequence& sequence, int32_t* ids) {
    const int64_t current = sequence.t / config_.sel_block_size;
    if (current < config_.top_n) return choice_.choose(nullptr, current, ids);
    RowScores scores(config_, sequence.t, sequence.num_blocks);
    choice_.choose(scores.find(logits_.data(), row_, inverse_, sequence.num_blocks, sequence.t),
                   current, ids);
  }

  const at::Tensor& q_;
  const NsaConfig& config_;
  const Sizes& sizes_;
  const CachedAttention& result_;
  const KernelTable& table_;
  BlockChoice choice_;
  int64_t heads_;  ///< columns of q_by_dim_
  int64_t place_ = 0, kv_head_ = 0, row_ = 0;
  std::vector<float> q_rows_, q_by_dim_, rows_, products_, logits_, out_, inverse_;
};

}  // namespace

CachedAttention attend_cached(const at::Tensor& q, const std::vector<CachedSequence>& sequences,
                              const NsaConfig& config) {
  const auto count = static_cast<int64_t>(sequences.size());
  const auto ints = q.options().dtype(at::kInt);
  const int64_t kv_heads = config.num_kv_heads, n = config.top_n;
  const at::Tensor v = at::empty({count, 1, kv_heads, config.v_head_dim}, q.options());
  const at::Tensor k = at::empty({count, 1, kv_heads, config.qk_head_dim}, q.options());
  const Sizes sizes(q, k, v);
  const CachedAttention result{empty_attention(q, v),
                               empty_attention(q, v),
                               empty_attention(q, v),
                               at::empty({count, 1, kv_heads, n}, ints),
                               at::empty({count, 1, kv_heads, n, 2}, ints),
                               at::empty({count, 1, kv_heads, 3}, q.options().dtype(at::kLong))};
  run_tasks(count * kv_heads, [&] {
    return [&, worker = CachedRow(q, config, sizes, result)](int64_t task) mutable {
      worker.run(sequences[static_cast<size_t>(task / kv_heads)], task / kv_heads, task % kv_heads);
    };
  });
  return result;
}

}  // namespace nsa::cpu
