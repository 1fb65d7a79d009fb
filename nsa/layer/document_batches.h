#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/config/config.h"

namespace nsa {

/// Documents of similar length that are computed as one padded batch.
struct DocumentBatch {
  std::vector<int64_t> documents;
  int64_t longest = 0;
  int64_t begin = 0;  ///< first packed token, where the batch is one document
  at::Tensor token;   ///< [documents * longest] packed token of each place, T where padded;
                      ///< undefined where the batch is one document

  /// x [T, ...] -> [documents, longest, ...], `fill` where padded. Differentiable.
  at::Tensor take(const at::Tensor& x, int64_t fill) const;
};

/// How packed documents are computed and put together again.
struct PackedLayout {
  std::vector<DocumentBatch> batches;  ///< one at least
  at::Tensor token_place;       ///< [T] where the batches, one behind the other, hold each token
  at::Tensor compressed_place;  ///< the same for compressed blocks, N_c(longest) a document
  at::Tensor cu_cmp;            ///< int32 [docs + 1]
};

/// offsets: [docs + 1], checked. Tensors are made on `device`.
PackedLayout packed_layout(const std::vector<int64_t>& offsets, const NsaConfig& config,
                           const at::Device& device);

}  // namespace nsa
