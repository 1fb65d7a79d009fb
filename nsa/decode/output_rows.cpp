#include "nsa/decode/output_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace nsa {

OutputRows::OutputRows(int64_t batch, int64_t num_tokens)
    : batch_(batch), num_tokens_(num_tokens), order_(static_cast<size_t>(batch * num_tokens), -1) {}

void OutputRows::add(const DecodeOutputs& piece, const std::vector<int64_t>& sequences,
                     const std::vector<int64_t>& first, const std::vector<int64_t>& count) {
  const int64_t width = piece.o.size(1);
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (int64_t s = 0; s < count[i]; ++s) {
      order_.at(static_cast<size_t>(sequences[i] * num_tokens_ + first[i] + s)) =
          num_rows_ + static_cast<int64_t>(i) * width + s;
    }
  }
  num_rows_ += piece.o.size(0) * width;
  pieces_.push_back(piece);
}

at::Tensor OutputRows::ordered(std::vector<at::Tensor> parts, double blank) const {
  for (at::Tensor& part : parts) {
    if (!part.defined()) return {};
    part = part.flatten(0, 1);
  }
  std::vector<int64_t> shape = parts[0].sizes().vec();
  shape[0] = 1;
  parts.push_back(at::full(shape, blank, parts[0].options()));
  std::vector<int64_t> index = order_;
  std::replace(index.begin(), index.end(), int64_t{-1}, num_rows_);
  const at::Tensor rows = at::tensor(index, at::kLong).to(parts[0].device());
  return at::cat(parts).index_select(0, rows).unflatten(0, {batch_, num_tokens_});
}

at::Tensor OutputRows::join(at::Tensor NsaOutputs::* member, double blank) const {
  std::vector<at::Tensor> parts;
  for (const DecodeOutputs& piece : pieces_) parts.push_back(piece.*member);
  return ordered(parts, blank);
}

DecodeOutputs OutputRows::join(int64_t score_width) const {
  DecodeOutputs out;
  for (const auto member :
       {&NsaOutputs::o, &NsaOutputs::o_cmp, &NsaOutputs::o_sel, &NsaOutputs::o_win,
        &NsaOutputs::q_rot, &NsaOutputs::gates, &NsaOutputs::ranges}) {
    out.*member = join(member, 0.0);
  }
  for (const auto member : {&NsaOutputs::lse_cmp, &NsaOutputs::lse_sel, &NsaOutputs::lse_win}) {
    out.*member = join(member, -std::numeric_limits<double>::infinity());
  }
  out.block_idx = join(&NsaOutputs::block_idx, -1);
  std::vector<at::Tensor> scores, reads;
  for (const DecodeOutputs& piece : pieces_) {
    const at::Tensor& x = piece.scores;
    scores.push_back(x.defined() ? at::constant_pad_nd(x, {0, score_width - x.size(-1)}, 0) : x);
    reads.push_back(piece.reads);
  }
  for (const DecodeOutputs& piece : pieces_) {
    merge_rows(out.ran, piece.ran);
    out.sdpa_calls.insert(out.sdpa_calls.end(), piece.sdpa_calls.begin(), piece.sdpa_calls.end());
    if (!piece.dropped_ids.defined()) continue;
    out.dropped_ids =
        out.dropped_ids.defined() ? out.dropped_ids.add(piece.dropped_ids) : piece.dropped_ids;
  }
  out.scores = ordered(scores, 0.0);
  out.reads = ordered(reads, 0.0);
  return out;
}

}  // namespace nsa
