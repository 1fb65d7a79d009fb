#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "nsa/reference/passes/row.h"

namespace nsa::reference {

/// Evaluates chosen rows (b, t, KV head) of a long sequence; costs what the rows need. Rotated keys
/// and compressed blocks are made when a row first loads them, and kept. Bit-equal to `forward`.
class Rows {
 public:
  /// Keeps references: `inputs` and `given` must outlive this object. Throws as `forward` does.
  Rows(const Config& config, const Inputs& inputs, const Given& given);
  Rows(const Config& config, const Inputs& inputs);

  /// Throws std::invalid_argument for a row outside the inputs.
  RowResult evaluate(int64_t b, int64_t t, int64_t kv_head);

  /// The same with the row's own rotated q and gates: `inputs` may then do without q and gates, of
  /// which a long sequence has too many to hold.
  RowResult evaluate(int64_t b, int64_t kv_head, const RowQuery& query);

 private:
  using Cache = std::unordered_map<int64_t, std::vector<double>>;  // by (b, index, kv_head)

  void check_row(int64_t b, int64_t t, int64_t kv_head) const;
  RowSources sources(int64_t b, int64_t kv_head);
  std::span<const double> compressed(bool key, int64_t b, int64_t block, int64_t kv_head);
  std::span<const double> rotated(const Tensor<double>& k, Cache& cache, int64_t b, int64_t t,
                                  int64_t kv_head);

  Config config_;
  const Inputs& inputs_;
  const Given& given_;
  std::vector<double> frequency_;
  Cache k_sel_, k_win_, k_cmp_, v_cmp_;
};

}  // namespace nsa::reference
