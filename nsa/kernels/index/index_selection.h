#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "nsa/kernels/interval/interval_attention.h"

/// Torch-free launcher of the choice of blocks by an index (docs/semantics.md, Selection by an
/// index): products of the index and their largest of each block stay on chip.
namespace nsa::kernels {

struct IndexSelection {
  Strided q;                     ///< [B, S, H, di]
  Strided k;                     ///< [B, S, 1, di]
  int32_t* block_idx = nullptr;  ///< [B, S, H, n] contiguous: ascending, -1 behind the last
  int batch = 0, num_tokens = 0, num_heads = 0;
  int head_dim = 0;    ///< di: 64 or 128
  int block_size = 0;  ///< tokens of a block: kIndexedBlock
  int top_n = 0;       ///< n: blocks of a row, its own included; 1 to kMostIndexed
  Element element = Element::kBFloat16;
};

constexpr int kIndexedBlock = 128, kMostIndexed = 16;

/// nullptr when the kernel takes these sizes; else why not, for a message.
const char* unsupported_reason(const IndexSelection& problem);

/// Enqueues the choice: of row (t, h) block t / 128, and of the blocks j before it those with the
/// largest q[t, h] . k[s] of a token s of j, summed in fp32. Equal ones go to the lower index, NaN
/// ranks below every number. No allocation, no synchronisation, capturable.
cudaError_t select_by_index(const IndexSelection& problem, cudaStream_t stream);

}  // namespace nsa::kernels
