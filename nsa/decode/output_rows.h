#pragma once
#include <vector>

#include "nsa/decode/decode_outputs.h"

namespace nsa {

/// Outputs of a batch put together from pieces that hold some rows each.
class OutputRows {
 public:
  OutputRows(int64_t batch, int64_t num_tokens);

  /// Row (i, s) of `piece` [A, S', ...] is token first[i] + s of sequence sequences[i], for
  /// s < count[i]; other rows are dropped.
  void add(const DecodeOutputs& piece, const std::vector<int64_t>& sequences,
           const std::vector<int64_t>& first, const std::vector<int64_t>& count);

  /// [B, S, ...]; at least one piece must have been added, be it without rows. Rows that no piece
  /// had are 0 (ids -1, lse -inf); scores are padded with 0 to `score_width`. What a piece lacks,
  /// the result lacks. What ran and dropped ids are added up.
  DecodeOutputs join(int64_t score_width) const;

 private:
  at::Tensor join(at::Tensor NsaOutputs::* member, double blank) const;
  at::Tensor ordered(std::vector<at::Tensor> parts, double blank) const;

  int64_t batch_, num_tokens_, num_rows_ = 0;
  std::vector<int64_t> order_;  ///< [B * S] row of the pieces, -1 = none
  std::vector<DecodeOutputs> pieces_;
};

}  // namespace nsa
