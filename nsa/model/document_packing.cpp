#include "nsa/model/document_packing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "nsa/model/blocks/loss.h"

namespace nsa {

at::Tensor document_starts(std::span<const uint8_t> tokens, int64_t row_tokens) {
  std::vector<int32_t> starts = {0};
  int32_t place = 0;
  for (size_t row = 0; row < tokens.size(); row += static_cast<size_t>(row_tokens)) {
    const auto inputs = tokens.subspan(row, static_cast<size_t>(row_tokens - 1));
    for (size_t i = 0; i < inputs.size(); ++i) {
      ++place;
      if (inputs[i] == kDocumentEnd || i + 1 == inputs.size()) starts.push_back(place);
    }
  }
  return at::tensor(starts, at::kInt);
}

int64_t count_targets(std::span<const uint8_t> tokens, int64_t row_tokens) {
  int64_t targets = 0;
  for (size_t row = 0; row < tokens.size(); row += static_cast<size_t>(row_tokens)) {
    const auto inputs = tokens.subspan(row, static_cast<size_t>(row_tokens - 1));
    targets += std::ranges::count_if(inputs, [](uint8_t token) { return token != kDocumentEnd; });
  }
  return targets;
}

LayerAttention within_documents(const at::Tensor& cu_seqlens) {
  return [cu_seqlens](size_t, NsaAttentionImpl& attention, const at::Tensor& x) {
    NsaAttentionImpl::Detailed packed = attention.forward_detailed(x.flatten(0, 1), cu_seqlens);
    packed.y = packed.y.view_as(x);
    return packed;
  };
}

at::Tensor packed_next_token_loss(const at::Tensor& logits, const at::Tensor& tokens) {
  return masked_next_token_loss(logits, tokens, tokens.slice(1, 0, -1).eq(kDocumentEnd));
}

}  // namespace nsa
