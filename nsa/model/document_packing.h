#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "nsa/model/blocks/decoder_layer.h"

namespace nsa {

/// The token behind every document of a corpus; it belongs to the document that it ends.
inline constexpr uint8_t kDocumentEnd = 0;

/// Where documents begin in rows of text, one row behind the other: a row begins one, and so does
/// the token behind a document's end. tokens: rows of `row_tokens` bytes each, of which the first
/// row_tokens - 1 are inputs -> cu_seqlens int32 [docs + 1] on the CPU, over rows * (row_tokens -
/// 1) inputs.
at::Tensor document_starts(std::span<const uint8_t> tokens, int64_t row_tokens);

/// Attention that stays within documents, for Decoder::forward on tokens [B, S]: the rows are
/// packed one behind the other, positions begin at 0 in every document. NSA layers only.
LayerAttention within_documents(const at::Tensor& cu_seqlens);

/// Targets that packed_next_token_loss counts in such rows: those whose input ends no document.
int64_t count_targets(std::span<const uint8_t> tokens, int64_t row_tokens);

/// next_token_loss without the targets that belong to another document than their input (those
/// behind a document's end): the mean over the others, 0 without any.
at::Tensor packed_next_token_loss(const at::Tensor& logits, const at::Tensor& tokens);

}  // namespace nsa
