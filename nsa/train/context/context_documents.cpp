#include "nsa/train/context/context_documents.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/model/document_packing.h"

namespace nsa::train {

std::vector<DocumentSegment> segments_of(const at::Tensor& cu_seqlens, int64_t rows,
                                         const ContextShard& shard) {
  const auto* starts = cu_seqlens.const_data_ptr<int32_t>();
  std::vector<DocumentSegment> segments;
  int64_t first = 0;  // document of the row
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t row_begin = row * shard.sequence, row_end = row_begin + shard.sequence;
    int64_t last = first;
    while (starts[last] < row_end) ++last;
    for (int64_t slot = 0; slot < ContextShard::kPieces; ++slot)
      for (int64_t doc = first; doc < last; ++doc) {
        const int64_t document = starts[doc] - row_begin;
        const int64_t begin = std::max(document, shard.begin(slot));
        const int64_t end = std::min<int64_t>(starts[doc + 1] - row_begin, shard.end(slot));
        if (begin < end) segments.push_back({row, slot, document, begin, end});
      }
    first = last;
  }
  return segments;
}

at::Tensor positions_of(const std::vector<DocumentSegment>& segments) {
  std::vector<at::Tensor> positions;
  for (const DocumentSegment& s : segments)
    positions.push_back(at::arange(s.first_position(), s.seen(), at::kLong));
  return at::cat(positions);
}

int64_t count_targets(std::span<const uint8_t> tokens, int64_t row_tokens,
                      const ContextShard& shard) {
  int64_t targets = 0;
  for (size_t row = 0; row < tokens.size(); row += static_cast<size_t>(row_tokens))
    for (int64_t slot = 0; slot < ContextShard::kPieces; ++slot) {
      const auto piece = tokens.subspan(row + static_cast<size_t>(shard.begin(slot)),
                                        static_cast<size_t>(shard.piece_tokens()));
      targets += std::ranges::count_if(piece, [](uint8_t token) { return token != kDocumentEnd; });
    }
  return targets;
}

}  // namespace nsa::train
