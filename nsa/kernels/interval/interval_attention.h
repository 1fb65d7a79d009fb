#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

/// Torch-free launcher of the interval attention kernels: every query attends one contiguous run of
/// keys, which is what the window branch (the last w keys) and the compressed branch (the visible
/// blocks) have in common.
namespace nsa::kernels {

enum class Element { kBFloat16, kHalf };

/// Which code a launcher enqueues: wgmma and TMA want compute capability 9.0, mma.sync and cp.async
/// run from 8.0 on.
enum class Code { kSm90, kSm80 };

/// Key i is attended at position t iff i * stride + extent - 1 <= t and i > t - window.
/// Window branch: stride 1, extent 1. Compressed branch: stride d, extent l, window = kEverything.
struct IntervalRule {
  static constexpr int kEverything = 1 << 30;
  int extent = 1;
  int stride = 1;
  int window = kEverything;
};

/// A [B, N, H, D] tensor, last axis contiguous; strides in elements, multiples of 8; the address a
/// multiple of 16 bytes.
struct Strided {
  const void* data = nullptr;
  int64_t batch = 0, token = 0, head = 0;
};

/// Choice of blocks from the probabilities of the compressed branch (paper, Eqs. 9 to 12); forced
/// blocks and ties as in the header of nsa/ops/select/top_n.
struct BlockSelection {
  int32_t* block_idx =
      nullptr;                ///< [B, S, Hkv, n] ascending, -1 behind the last; null: no selection
  int32_t* ranges = nullptr;  ///< [B, S, Hkv, n, 2] half-open token intervals, or null
  int sel_block_size = 0, top_n = 0, num_initial = 0, num_local = 0;  ///< as in NsaConfig
};

/// Tokens [first, first + count) of one document of a packed sequence.
struct DocumentTile {
  int32_t first, count;
  int32_t start;      ///< first token of the document: token t stands at position t - start
  int32_t first_key;  ///< of the document in k and v
};

struct IntervalAttention {
  Strided q;             ///< [B, S, Hq, dk]
  Strided k;             ///< [B, N, Hkv, dk]
  Strided v;             ///< [B, N, Hkv, dv]
  void* out = nullptr;   ///< [B, S, Hq, dv] contiguous, element type
  float* lse = nullptr;  ///< [B, S, Hq] natural log; -inf for a row without keys
  int batch = 0, num_queries = 0, num_keys = 0, num_heads = 0, num_kv_heads = 0;
  int qk_head_dim = 0, v_head_dim = 0;
  int first_position = 0;  ///< query i stands at position first_position + i
  int first_query = 0;     ///< backward: queries before it attend nothing and keep their d_q
  IntervalRule rule;
  float scale = 0;
  BlockSelection selection;  ///< compressed branch only; first_position + num_queries tokens exist
  /// Device memory or null. The documents of the one sequence of a batch, cut into tiles of
  /// tokens_of_tile (document_tiles.h) tokens at most; a tile of no token is skipped. Keys of a
  /// document are counted from its first one, positions, ids and ranges of blocks from its first
  /// token. Forward only, first_position 0.
  const DocumentTile* documents = nullptr;
  int num_document_tiles = 0;
  Element element = Element::kBFloat16;
  Code code = Code::kSm90;
};

/// nullptr when a kernel exists for these sizes; else why not, for a message.
const char* unsupported_reason(const IntervalAttention& problem);

/// Enqueues the forward pass. No allocation, no synchronisation, capturable.
cudaError_t interval_attention_forward(const IntervalAttention& problem, cudaStream_t stream);

}  // namespace nsa::kernels
