#include "suites/phases/learning/trained_gates.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace suites {
namespace {

constexpr int64_t kParts = 4;

at::Tensor tokens_of(const nsa::train::TokenSource& rows, int64_t row, int64_t seq_len) {
  std::vector<uint8_t> bytes(static_cast<size_t>(seq_len + 1));
  rows.read_row(row, bytes);
  return at::from_blob(bytes.data(), {1, seq_len + 1}, at::kByte)
      .narrow(1, 0, seq_len)
      .to(at::kLong);
}

}  // namespace

std::vector<LayerGates> gates_by_layer(nsa::Decoder& model, const nsa::train::TokenSource& rows,
                                       int64_t count, int64_t seq_len, at::Device device) {
  const at::NoGradGuard no_grad;
  const int64_t part = (seq_len + kParts - 1) / kParts;
  std::vector<at::Tensor> sums;  // by layer, [S, 3]
  for (int64_t row = 0; row < count; ++row) {
    const auto out = model->forward(tokens_of(rows, row, seq_len).to(device));
    sums.resize(out.gates.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const at::Tensor here = out.gates[i].to(at::kDouble).mean(at::IntArrayRef{0, 2}).cpu();
      sums[i] = sums[i].defined() ? sums[i] + here : here;
    }
  }
  std::vector<LayerGates> found;
  for (size_t i = 0; i < sums.size(); ++i)
    for (int64_t first = 0; first < seq_len; first += part) {
      const int64_t last = std::min(first + part, seq_len) - 1;
      const at::Tensor mean =
          sums[i].slice(0, first, last + 1).mean(0) / static_cast<double>(count);
      const double* values = mean.const_data_ptr<double>();
      found.push_back({.layer = static_cast<int64_t>(i),
                       .first = first,
                       .last = last,
                       .mean = {values[0], values[1], values[2]}});
    }
  return found;
}

}  // namespace suites
