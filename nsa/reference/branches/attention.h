#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// One loaded key and its value.
struct KeyValue {
  std::span<const double> k;  ///< [dk]
  std::span<const double> v;  ///< [dv]
};

/// The only way to a key or value: `load(i)` fetches pair i and counts it, so `reads` is a count of
/// loads that happened, not a formula.
class KeyValueSource {
 public:
  explicit KeyValueSource(std::function<KeyValue(int64_t)> fetch) : fetch_(std::move(fetch)) {}
  KeyValue load(int64_t index) {
    ++reads_;
    return fetch_(index);
  }
  int64_t reads() const { return reads_; }

 private:
  std::function<KeyValue(int64_t)> fetch_;
  int64_t reads_ = 0;
};

/// Attention of the G heads of one (b, t, KV head) over n loaded pairs.
struct RowAttention {
  Tensor<double> o;         ///< [G,dv]
  Tensor<double> p;         ///< [G,n] softmax probabilities
  std::vector<double> lse;  ///< [G], natural log; -inf for n = 0
};

/// Loads every index once, for all G heads: o = softmax(scale q.k) v; no scale: 1 / sqrt(dk). No
/// index: o = 0, lse = -inf. q: G * dk values, already rotated.
RowAttention attend(std::span<const double> q, int64_t group_size, int64_t v_head_dim,
                    const std::vector<int64_t>& indices, KeyValueSource& source,
                    std::optional<double> scale = {});

/// Which keys the row (b, t, KV head) attends, ascending.
using AttendedKeys = std::function<std::vector<int64_t>(int64_t b, int64_t t, int64_t kv_head)>;

/// Attention of whole tensors.
struct Attention {
  Tensor<double> o;       ///< [B,S,Hq,dv]
  Tensor<double> lse;     ///< [B,S,Hq]
  Tensor<double> p;       ///< [B,S,Hq,N], 0 where not attended; compressed branch only
  Tensor<int64_t> reads;  ///< [B,S,Hkv] pairs loaded
};

/// q [B,S,Hq,dk], k [B,N,Hkv,dk], v [B,N,Hkv,dv]; rows attend the keys of `attended`, and no other
/// key is read. `op` names the caller in errors, `scale` is that of attend.
Attention attention(const std::string& op, const Tensor<double>& q, const Tensor<double>& k,
                    const Tensor<double>& v, const AttendedKeys& attended,
                    std::optional<double> scale = {}, bool keep_p = false);

/// Gradients of `attention` for d_o [B,S,Hq,dv]; shapes of q, k and v.
struct AttentionGradients {
  Tensor<double> q, k, v;
};
AttentionGradients attention_backward(const std::string& op, const Tensor<double>& q,
                                      const Tensor<double>& k, const Tensor<double>& v,
                                      const AttendedKeys& attended, const Tensor<double>& d_o,
                                      std::optional<double> scale = {});

}  // namespace nsa::reference
