#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nsa/train/context/context_shard.h"

namespace nsa::train {

/// The part of a document that lies in one piece of a rank, in tokens of its row.
struct DocumentSegment {
  int64_t row = 0, slot = 0;  ///< of the batch; piece of the rank
  int64_t document = 0;       ///< where its document begins
  int64_t begin = 0, end = 0;
  int64_t first_position() const { return begin - document; }  ///< of its queries
  int64_t seen() const { return end - document; }  ///< tokens of the document that they may attend
};

/// The segments of a rank, by row, piece and place: one behind the other they are its tokens.
/// `cu_seqlens` int32 [documents + 1] on the CPU over `rows` rows of shard.sequence tokens; a row
/// begins a document.
std::vector<DocumentSegment> segments_of(const at::Tensor& cu_seqlens, int64_t rows,
                                         const ContextShard& shard);

/// The place of every token of a rank in its document, int64 [rows * shard.count()] on the CPU.
at::Tensor positions_of(const std::vector<DocumentSegment>& segments);

/// Targets of a rank's inputs that packed_next_token_loss counts, in rows of `row_tokens` bytes.
int64_t count_targets(std::span<const uint8_t> tokens, int64_t row_tokens,
                      const ContextShard& shard);

}  // namespace nsa::train
