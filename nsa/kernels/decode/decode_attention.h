#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "nsa/kernels/interval/interval_attention.h"

/// Torch-free launcher of a decode step: one new token, or up to kMostNewTokens, of each of a batch
/// of sequences attends its caches in all three branches, in one launch. Lengths are read on the
/// device, so a captured launch serves every following token.
namespace nsa::kernels {

/// New tokens of a sequence that one launch takes.
constexpr int kMostNewTokens = 8;

/// Keys and values [rows, Hkv, .] of growing sequences in pages: position p of a sequence stands in
/// row page_table[sequence][p / page_size] * page_size + p % page_size.
struct PagedKv {
  void* k = nullptr;
  void* v = nullptr;
  const int64_t* page_table = nullptr;  ///< [sequences, pages_per_sequence], -1 = no page
  int page_size = 0, pages_per_sequence = 0;
};

/// The last num_slots tokens of every sequence: position p in row sequence * num_slots +
/// p % num_slots of k, v [rows, Hkv, .].
struct RingKv {
  void* k = nullptr;
  void* v = nullptr;
  int num_slots = 0;
};

enum class GateFunction { kSoftmax, kSigmoid, kNone };

/// What the launch itself puts into the caches before it attends: the new tokens, and the
/// compressed block (mean) that may end with one of them. Strided tensors are [A, tokens, Hkv, .],
/// not rotated; the length of each sequence then grows by `tokens`.
struct DecodeAppend {
  Strided k_sel, v_sel, k_win, v_win, k_cmp_src, v_cmp_src;
  RingKv source;                      ///< the last tokens of the source of compression, l at least
  int64_t* num_blocks = nullptr;      ///< [sequences] compressed blocks
  int64_t* emission_reads = nullptr;  ///< [sequences, Hkv] += l where a block is made; or null
  int32_t* arrivals = nullptr;        ///< [sequences] zeros; the launch leaves zeros
  /// [dk / 2] half turns a position: base^(-2m/dk) / pi; null: nothing is rotated, q neither.
  const double* half_turns = nullptr;
  bool rotate_source = false;  ///< keys of the source are rotated (before they are pooled)
};

struct DecodeAttention {
  /// New tokens of each sequence. Rings then hold `tokens` - 1 tokens more than window_size and
  /// block_size, or all that there are, as a row still attends what a later one takes the slot of.
  int tokens = 1;
  Strided q;                           ///< [A, tokens, Hq, dk]; not rotated iff append rotates
  const void* gate_logits = nullptr;   ///< [A, tokens, gate_heads, 3] contiguous, element type
  const int64_t* sequences = nullptr;  ///< [A] places in the caches, no two equal; null: 0 .. A-1
  /// [A] 0 .. A-1 as they begin, the longest first; or null. Read before the kernel before this one
  /// has ended, which must not write it.
  const int32_t* order = nullptr;
  int64_t* num_tokens = nullptr;  ///< [sequences], new tokens included iff not append
  PagedKv selected, compressed;
  RingKv window;
  bool appends = false;
  DecodeAppend append;  ///< read iff appends

  // Of each new token, as rows [A, tokens].
  void* out = nullptr;           ///< [A, Hq, dv] gated sum
  void* branch_out[3] = {};      ///< [A, Hq, dv] cmp, sel, win; all or none
  float* lse[3] = {};            ///< [A, Hq] cmp, sel, win, natural log; all or none
  float* gates = nullptr;        ///< [A, gate_heads, 3] activated, or null
  void* q_rotated = nullptr;     ///< [A, Hq, dk], or null
  int32_t* block_idx = nullptr;  ///< [A, Hkv, n], as select_blocks gives them, or null
  int32_t* ranges = nullptr;     ///< [A, Hkv, n, 2], or null
  float* scores = nullptr;       ///< [A, Hkv, score_width], 0 behind the last block; or null
  int64_t* reads = nullptr;      ///< [A, Hkv, 3] pairs loaded, counted where; or null
  int score_width = 0;

  int batch = 0, num_heads = 0, num_kv_heads = 0, qk_head_dim = 0, v_head_dim = 0, gate_heads = 0;
  int block_size = 0, block_stride = 0, sel_block_size = 0, top_n = 0, num_initial = 0,
      num_local = 0, window_size = 0;
  /// Tokens of the longest sequence while this launch, or a capture of it, is used; the out of a
  /// longer one is NaN, and nothing else of it changes.
  int max_tokens = 0;
  float scale = 0;
  GateFunction gate = GateFunction::kSoftmax;
  Element element = Element::kBFloat16;
  int ranks = 0, warps = 0;  ///< blocks of threads a (sequence, KV head), a power of two, and
                             ///< warps each, 4 to 8; 0: chosen
  bool unit_sums = false;    ///< what scores need is kept as sums of selection blocks, as for long
                             ///< sequences (l' = 4 d, l = 2 d); false: as chosen
};

/// nullptr when a kernel exists for these sizes on the current device; else why not.
const char* unsupported_reason(const DecodeAttention& problem);

/// Enqueues the step. No allocation, no synchronisation, capturable; the same bits every time.
cudaError_t decode_attention(const DecodeAttention& problem, cudaStream_t stream);

}  // namespace nsa::kernels
