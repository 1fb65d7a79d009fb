#include "nsa/layer/document_batches.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nsa {
namespace {

/// Places of a batch of several documents, padding included.
constexpr int64_t kBatchPlaces = 8192;
/// Lengths may differ by a quarter and this many tokens.
constexpr int64_t kSlackTokens = 16;

bool similar(int64_t shorter, int64_t longer) {
  return longer <= shorter + shorter / 4 + kSlackTokens;
}

/// Non-empty documents by ascending length, cut where lengths differ or the batch gets large.
std::vector<DocumentBatch> group(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> order;
  for (size_t doc = 0; doc < lengths.size(); ++doc) {
    if (lengths[doc] > 0) order.push_back(static_cast<int64_t>(doc));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return lengths[a] < lengths[b]; });
  std::vector<DocumentBatch> batches;
  int64_t shortest = 0;
  for (const int64_t doc : order) {
    const int64_t length = lengths[doc];
    const bool joins =
        !batches.empty() && similar(shortest, length) &&
        (static_cast<int64_t>(batches.back().documents.size()) + 1) * length <= kBatchPlaces;
    if (!joins) {
      batches.emplace_back();
      shortest = length;
    }
    batches.back().documents.push_back(doc);
    batches.back().longest = length;
  }
  if (batches.empty()) batches.push_back({{0}, 0, 0, {}});  // no token at all: shapes only
  return batches;
}

at::Tensor index_on(const at::Device& device, const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong).to(device);
}

/// Fills `place[packed]` for one batch whose documents hold `per_document` places each.
void fill_places(const DocumentBatch& batch, const std::vector<int64_t>& offsets,
                 int64_t per_document, int64_t first, std::vector<int64_t>& place) {
  for (size_t i = 0; i < batch.documents.size(); ++i) {
    const int64_t doc = batch.documents[i];
    for (int64_t packed = offsets[doc]; packed < offsets[doc + 1]; ++packed) {
      place[packed] = first + static_cast<int64_t>(i) * per_document + packed - offsets[doc];
    }
  }
}

at::Tensor tokens_of(const DocumentBatch& batch, const std::vector<int64_t>& offsets,
                     const at::Device& device) {
  std::vector<int64_t> token(batch.documents.size() * batch.longest, offsets.back());
  for (size_t i = 0; i < batch.documents.size(); ++i) {
    const int64_t doc = batch.documents[i];
    for (int64_t t = 0; t < offsets[doc + 1] - offsets[doc]; ++t) {
      token[i * batch.longest + t] = offsets[doc] + t;
    }
  }
  return index_on(device, token);
}

}  // namespace

at::Tensor DocumentBatch::take(const at::Tensor& x, int64_t fill) const {
  if (!token.defined()) return x.narrow(0, begin, longest).unsqueeze(0);
  std::vector<int64_t> one_more(2 * x.dim(), 0);
  one_more.back() = 1;  // a row of `fill` behind the tokens
  const auto count = static_cast<int64_t>(documents.size());
  return at::constant_pad_nd(x, one_more, fill)
      .index_select(0, token)
      .unflatten(0, {count, longest});
}

PackedLayout packed_layout(const std::vector<int64_t>& offsets, const NsaConfig& config,
                           const at::Device& device) {
  const size_t num_documents = offsets.size() - 1;
  std::vector<int64_t> lengths, compressed_offsets{0};
  for (size_t doc = 0; doc < num_documents; ++doc) {
    lengths.push_back(offsets[doc + 1] - offsets[doc]);
    compressed_offsets.push_back(compressed_offsets.back() + config.num_compressed(lengths[doc]));
  }
  PackedLayout layout;
  layout.batches = group(lengths);
  std::vector<int64_t> token_place(offsets.back()), compressed_place(compressed_offsets.back());
  int64_t first_token = 0, first_compressed = 0;
  for (DocumentBatch& batch : layout.batches) {
    if (num_documents == 0) break;
    const auto count = static_cast<int64_t>(batch.documents.size());
    const int64_t blocks = config.num_compressed(batch.longest);
    fill_places(batch, offsets, batch.longest, first_token, token_place);
    fill_places(batch, compressed_offsets, blocks, first_compressed, compressed_place);
    first_token += count * batch.longest;
    first_compressed += count * blocks;
    batch.begin = offsets[batch.documents[0]];
    if (count > 1) batch.token = tokens_of(batch, offsets, device);
  }
  layout.token_place = index_on(device, token_place);
  layout.compressed_place = index_on(device, compressed_place);
  layout.cu_cmp = index_on(device, compressed_offsets).to(at::kInt);
  return layout;
}

}  // namespace nsa
