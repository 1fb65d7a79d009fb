#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "nsa/kernels/interval/interval_attention.h"

/// Torch-free launcher of what the kernels read about packed documents, from their offsets on the
/// device: nothing is read back.
namespace nsa::kernels {

/// Documents [cu_seqlens[d], cu_seqlens[d + 1]) lie one behind the other in T tokens. The means of
/// a document's blocks begin at row cu_seqlens[d] / block_stride of T / block_stride rows: blocks
/// are no shorter than their stride, so those of the next document begin behind them. Offsets that
/// do not ascend from 0 to T give wrong results, but no address outside of the tensors.
struct DocumentTables {
  struct Tiles {
    DocumentTile* out = nullptr;  ///< [num_tiles(p, tokens)]
    int tokens = 1;               ///< of a tile, at most
    bool of_blocks = false;       ///< keys are means of blocks, else tokens
  };
  const int32_t* cu_seqlens = nullptr;  ///< [documents + 1]
  int documents = 0, num_tokens = 0, num_kv_heads = 0;
  int block_size = 1, block_stride = 1;
  int window = 0;
  int longest = 0;              ///< tokens that a document has at most
  int32_t* start = nullptr;     ///< [T] first token of a token's document
  int32_t* position = nullptr;  ///< [T] of a token in its document
  /// [T] 0; NaN where a document is longer than `longest`, and outside of all documents.
  float* poison = nullptr;
  /// [T / block_stride] first token of a block, -1 where a row holds no mean.
  int32_t* block_first = nullptr;
  int2* window_range = nullptr;  ///< [T, Hkv] tokens that a token's window holds; or null
  int2* block_range = nullptr;   ///< [T, Hkv] rows of blocks that end at a token or before; or null
  Tiles tiles[2];                ///< without `out`: none
};

/// Tiles of `tokens` tokens at most that hold the documents, whatever their lengths.
constexpr int num_document_tiles(int num_tokens, int documents, int tokens) {
  return num_tokens / tokens + documents;
}

/// One launch. No allocation, no synchronisation, capturable.
cudaError_t document_tables(const DocumentTables& problem, cudaStream_t stream);

}  // namespace nsa::kernels
