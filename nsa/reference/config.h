#pragma once
#include <cstdint>
#include <optional>

namespace nsa::reference {

/// How l tokens become one compressed block (paper Eq. 7).
enum class Phi { kMean, kConv, kMlp };
/// Activation of the gate logits; kNone: the gates are already activated.
enum class Gate { kNone, kSigmoid, kSoftmax };
/// What compression does with positions. kNone switches RoPE off everywhere.
enum class Rope { kBeforePool, kBlockStart, kNone };
/// Which elements of a head RoPE turns together: 2m and 2m + 1, or m and m + dk/2.
enum class RopePairs { kInterleaved, kHalfSplit };

/// Everything that fixes the meaning of one NSA layer (docs/semantics.md).
struct Config {
  int64_t num_heads = 12;       ///< Hq, query heads; head h belongs to KV head floor(h / G)
  int64_t num_kv_heads = 2;     ///< Hkv; divides Hq, G = Hq / Hkv
  int64_t qk_head_dim = 64;     ///< dk; even unless RoPE is off
  int64_t v_head_dim = 64;      ///< dv
  int64_t block_size = 32;      ///< l, tokens of a compressed block
  int64_t block_stride = 16;    ///< d, tokens between block starts; divides l and l'
  int64_t sel_block_size = 64;  ///< l', tokens of a selection block; l <= l'
  int64_t top_n = 16;           ///< n, selected blocks a query, forced ones included
  int64_t n_initial = 1;        ///< blocks forced at the start
  int64_t n_local = 2;          ///< blocks forced at the end, the current one included
  int64_t window = 512;         ///< w, keys of the window, the current one included; 0: none
  Phi phi = Phi::kMean;
  Gate gate = Gate::kNone;
  Rope rope = Rope::kBeforePool;
  RopePairs rope_pairs = RopePairs::kInterleaved;
  double rope_base = 1e4;
  /// Factor of q.k before the softmax of a branch; nothing: 1 / sqrt(dk).
  std::optional<double> scale_cmp, scale_sel, scale_win;

  int64_t group_size() const { return num_heads / num_kv_heads; }  ///< G
};

/// Throws std::invalid_argument naming the first field that breaks a rule, and its value.
void validate(const Config& config);

}  // namespace nsa::reference
