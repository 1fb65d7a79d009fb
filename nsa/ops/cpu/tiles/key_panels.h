#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/ops/cpu/inner_loops/kernel_table.h"
#include "nsa/ops/cpu/tiles/head_rows.h"

namespace nsa::cpu {

/// Sizes of one call.
struct Sizes {
  Sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

  int64_t batch, num_queries, num_keys, num_kv_heads, group;
  int64_t dk, dv;
  int64_t dk_row, dv_row;  ///< row lengths in buffers: multiples of kRowMultiple
  int64_t panels;          ///< of kPanelKeys keys
  int64_t matrices() const { return batch * num_kv_heads; }
};

/// Keys and values of a call in fp32, copied once into the orders in which products read them; the
/// matrix (b, KV head) has number b * Hkv + head. Memory is linear in the number of keys.
class KeyPanels {
 public:
  /// `backward`: with the two orders that only gradients need.
  KeyPanels(const at::Tensor& k, const at::Tensor& v, const Sizes& sizes, bool backward);

  /// [dk, 64]: a column a key. Values as given.
  const float* keys_by_dim(int64_t matrix, int64_t panel) const;
  /// [64, dv_row]: a row a key. A value that is not finite is 0, as products multiply weights of 0.
  const float* values(int64_t matrix, int64_t panel) const;
  /// [64, dk_row]: a row a key, not finite is 0; backward only.
  const float* keys(int64_t matrix, int64_t panel) const;
  /// [dv, 64]: a column a key, values as given; backward only.
  const float* values_by_dim(int64_t matrix, int64_t panel) const;
  /// Keys of the panel that have a value that is not finite.
  uint64_t non_finite_values(int64_t matrix, int64_t panel) const;

 private:
  void pack(const HeadRows& k, const HeadRows& v, int64_t matrix, int64_t panel, float* buffer);

  Sizes sizes_;
  bool backward_;
  at::Tensor keys_by_dim_, values_, keys_, values_by_dim_;
  std::vector<uint64_t> non_finite_;
};

/// Sets what is not finite to 0; returns whether there was any.
bool clear_non_finite(float* x, int64_t count);

}  // namespace nsa::cpu
