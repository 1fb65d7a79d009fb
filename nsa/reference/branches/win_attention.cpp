#include "nsa/reference/branches/win_attention.h"

#include <algorithm>

namespace nsa::reference {
namespace {

AttendedKeys window_attended_by(const Config& config) {
  return [&config](int64_t, int64_t t, int64_t) { return window_keys(config, t); };
}

}  // namespace

std::vector<int64_t> window_keys(const Config& config, int64_t t) {
  std::vector<int64_t> keys;
  for (int64_t s = std::max<int64_t>(0, t - config.window + 1); s <= t; ++s) keys.push_back(s);
  return keys;
}

Attention win_attention(const Config& config, const Tensor<double>& q, const Tensor<double>& k_win,
                        const Tensor<double>& v_win) {
  return attention("win_attention", q, k_win, v_win, window_attended_by(config), config.scale_win);
}

AttentionGradients win_attention_backward(const Config& config, const Tensor<double>& q,
                                          const Tensor<double>& k_win, const Tensor<double>& v_win,
                                          const Tensor<double>& d_o) {
  return attention_backward("win_attention", q, k_win, v_win, window_attended_by(config), d_o,
                            config.scale_win);
}

}  // namespace nsa::reference
