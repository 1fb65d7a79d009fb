#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace nsa {

/// How a block of l tokens becomes one compressed token (paper, Eq. 7).
enum class Phi { kMean, kConv, kMlp };
/// How gate logits become gates (paper, Eq. 5); `kNone`: they are gates already.
enum class GateActivation { kNone, kSoftmax, kSigmoid };
/// Where RoPE stands relative to compression; `kNone`: nothing is rotated anywhere.
enum class RopeMode { kBeforePool, kBlockStart, kNone };
/// Which elements of a head RoPE turns together: 2m and 2m + 1, or m and m + dk/2 (as in GPT-NeoX
/// and Llama checkpoints of Transformers).
enum class RopePairs { kInterleaved, kHalfSplit };

/// Names used in files and reports: mean, conv, mlp / none, softmax, sigmoid / before_pool,
/// block_start, none / interleaved, half_split. The parsers throw std::invalid_argument naming the
/// value and the choices.
std::string to_string(Phi phi);
std::string to_string(GateActivation activation);
std::string to_string(RopeMode mode);
std::string to_string(RopePairs pairs);
Phi parse_phi(const std::string& text);
GateActivation parse_gate_activation(const std::string& text);
RopeMode parse_rope_mode(const std::string& text);
RopePairs parse_rope_pairs(const std::string& text);

/// Sizes of MiniMax Sparse Attention (arXiv 2606.13392), whose blocks an index chooses; head counts
/// and dims are those of the tensors.
struct MsaConfig {
  int64_t block_size = 128;  ///< tokens of a block
  int64_t top_n = 16;        ///< blocks a query and KV head, the current one included
};

/// Sizes and choices of one attention layer; symbols of docs/semantics.md. Torch-free.
struct NsaConfig {
  int64_t num_heads = 12;       ///< Hq, query heads
  int64_t num_kv_heads = 2;     ///< Hkv; query head h belongs to KV head floor(h / G)
  int64_t qk_head_dim = 64;     ///< dk
  int64_t v_head_dim = 64;      ///< dv
  int64_t block_size = 32;      ///< l, tokens a compressed block covers
  int64_t block_stride = 16;    ///< d, tokens from one compressed block to the next
  int64_t sel_block_size = 64;  ///< l', tokens of a selection block
  int64_t top_n = 16;           ///< n, selected blocks a query, forced ones included
  int64_t num_initial = 1;      ///< forced blocks at the start
  int64_t num_local = 2;        ///< forced blocks at the end, the current one included
  int64_t window = 512;         ///< w, keys of the window branch; 0: the branch is off
  Phi phi = Phi::kMean;
  GateActivation gate = GateActivation::kSoftmax;
  RopeMode rope = RopeMode::kBeforePool;
  RopePairs rope_pairs = RopePairs::kInterleaved;
  double rope_base = 1e4;
  /// Factor of q.k before the softmax of a branch, above 0; nothing: 1 / sqrt(dk).
  std::optional<double> scale_cmp, scale_sel, scale_win;

  /// Throws std::invalid_argument `NsaConfig: <field> must be <rule>, got <value>` for the first
  /// rule of docs/semantics.md, Validity, that is broken.
  void validate() const;

  /// G = Hq / Hkv.
  int64_t group_size() const { return num_heads / num_kv_heads; }
  /// N_c(S): whole compressed blocks in `num_tokens` tokens.
  int64_t num_compressed(int64_t num_tokens) const;
  /// ceil(S / l').
  int64_t num_sel_blocks(int64_t num_tokens) const;
  /// The factors in force.
  double cmp_scale() const { return scale_cmp.value_or(default_scale()); }
  double sel_scale() const { return scale_sel.value_or(default_scale()); }
  double win_scale() const { return scale_win.value_or(default_scale()); }
  /// 1 / sqrt(dk).
  double default_scale() const;
  /// One factor for all branches.
  void set_scale(double scale) { scale_cmp = scale_sel = scale_win = scale; }
};

/// The 12-layer, 768-wide configuration of the historical system.
NsaConfig m7c_125m();
/// Small enough to train a few hundred steps on two cores (64 wide, S = 128).
NsaConfig tiny_cpu();

}  // namespace nsa
