#include "nsa/reference/branches/sel_attention.h"

#include <algorithm>

namespace nsa::reference {
namespace {

AttendedKeys tokens_attended_by(const Tensor<double>& q, const Tensor<double>& k_sel,
                                const Tensor<int32_t>& ranges) {
  require_rank("sel_attention", "q", q, 4, "[B,S,Hq,dk]");
  require_rank("sel_attention", "k_sel", k_sel, 4, "[B,S,Hkv,dk]");
  require_rank("sel_attention", "ranges", ranges, 5, "[B,S,Hkv,K,2]");
  require_shape("sel_attention", "k_sel", k_sel, {q.size(0), q.size(1), k_sel.size(2), q.size(3)});
  require_shape("sel_attention", "ranges", ranges,
                {q.size(0), q.size(1), k_sel.size(2), ranges.size(3), 2});
  return [&ranges](int64_t b, int64_t t, int64_t kv_head) {
    return union_of_ranges(ranges.row(b, t, kv_head), t);
  };
}

}  // namespace

std::vector<int64_t> union_of_ranges(std::span<const int32_t> ranges, int64_t t) {
  std::vector<std::pair<int64_t, int64_t>> intervals;
  for (size_t i = 0; i + 1 < ranges.size(); i += 2)
    intervals.emplace_back(ranges[i], std::min<int64_t>(ranges[i + 1], t + 1));
  std::sort(intervals.begin(), intervals.end());
  std::vector<int64_t> tokens;
  int64_t next = 0;  // smallest token not yet considered
  for (const auto& [begin, end] : intervals)
    for (next = std::max(next, begin); next < end; ++next) tokens.push_back(next);
  return tokens;
}

Attention sel_attention(const Tensor<double>& q, const Tensor<double>& k_sel,
                        const Tensor<double>& v_sel, const Tensor<int32_t>& ranges,
                        std::optional<double> scale) {
  return attention("sel_attention", q, k_sel, v_sel, tokens_attended_by(q, k_sel, ranges), scale);
}

AttentionGradients sel_attention_backward(const Tensor<double>& q, const Tensor<double>& k_sel,
                                          const Tensor<double>& v_sel,
                                          const Tensor<int32_t>& ranges, const Tensor<double>& d_o,
                                          std::optional<double> scale) {
  return attention_backward("sel_attention", q, k_sel, v_sel, tokens_attended_by(q, k_sel, ranges),
                            d_o, scale);
}

}  // namespace nsa::reference
