#pragma once
#include <cstdint>
#include <string>

/// One NSA configuration with its sizes, as tests and workers name it (symbols of
/// docs/semantics.md).
namespace suites {

enum class Phi { kMean, kConv, kMlp };
enum class GateKind { kNone, kSigmoid, kSoftmax };
enum class RopeKind { kBeforePool, kBlockStart, kNone };

struct CaseConfig {
  int64_t batch = 1, tokens = 32;            ///< B, S
  int64_t num_heads = 4, num_kv_heads = 2;   ///< Hq, Hkv
  int64_t qk_head_dim = 8, v_head_dim = 8;   ///< dk, dv
  int64_t block_size = 8, block_stride = 4;  ///< l, d
  int64_t sel_block_size = 8;                ///< l'
  int64_t top_n = 4, n_initial = 1, n_local = 2;
  int64_t window = 16;  ///< w
  Phi phi = Phi::kMean;
  GateKind gate = GateKind::kSoftmax;
  RopeKind rope = RopeKind::kBeforePool;
  double rope_base = 1e4;
  bool gate_per_kv_head = false;  ///< gate logits [B,S,Hkv,3] instead of [B,S,Hq,3]

  int64_t group_size() const { return num_heads / num_kv_heads; }
  int64_t num_compressed() const {
    return tokens < block_size ? 0 : (tokens - block_size) / block_stride + 1;
  }
  int64_t num_sel_blocks() const { return (tokens + sel_block_size - 1) / sel_block_size; }
};

/// "B1_S32_H4x2_d8x8_l8_4_8_n4_1_2_w16_mean_softmax_before_pool": unique, legal in a test name.
std::string to_string(const CaseConfig& config);

/// Test `index` of the sample that `seed` draws over valid configurations: every phi, gate and rope
/// kind, S below, at and above l, l' and w, prime S, G from 1 to 4, dk != dv, shared and separate
/// gates. The first configurations are fixed corner cases (S = 1, l-1, l, l+1, l'-1, l', l'+1, w-1,
/// w, w+1, prime, 2w), the rest are random. B * S is at least 384 and dv at least 7: the tolerance
/// rule takes the largest row-relative error of the plain computation, which is chance where rows
/// are few, or where so few values make a row that one of them is nearly 0 by chance.
CaseConfig sample_config(uint64_t seed, int64_t index);

/// Number of fixed corner cases at the start of every sample.
inline constexpr int64_t kCornerCases = 12;

/// sample_config(seed, kKernelCase + i), 0 <= i < kKernelCases: head dims and groups that the CUDA
/// kernels are built for, blocks of the paper and others, several tiles of tokens.
inline constexpr int64_t kKernelCase = 900, kKernelCases = 8;

}  // namespace suites
