#include "suites/eval/layout.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace suites::eval {

Axes Layout::axes(const Axes& rest) const {
  Axes all = packed() ? Axes{{"T", tokens}} : Axes{{"B", batch}, {"S", tokens}};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

size_t Layout::num_parts() const { return std::max<size_t>(2, offsets.size()) - 1; }

int64_t Layout::length(size_t part) const {
  if (!packed()) return tokens;
  return offsets.size() == 1 ? 0 : offsets[part + 1] - offsets[part];
}

int64_t Layout::longest() const {
  int64_t longest = 0;
  for (size_t i = 0; i < num_parts(); ++i) longest = std::max(longest, length(i));
  return longest;
}

at::Tensor Layout::part(const at::Tensor& x, size_t part) const {
  return packed() ? x.narrow(0, offsets[part], length(part)).unsqueeze(0) : x;
}

at::Tensor Layout::part_blocks(const at::Tensor& x, size_t part,
                               const nsa::NsaConfig& config) const {
  if (!packed()) return x;
  int64_t first = 0;
  for (size_t i = 0; i < part; ++i) first += config.num_compressed(length(i));
  return x.narrow(0, first, config.num_compressed(length(part))).unsqueeze(0);
}

at::Tensor Layout::join(const std::vector<at::Tensor>& parts, int64_t width) const {
  if (!packed()) return parts.at(0);
  std::vector<at::Tensor> padded;
  for (const at::Tensor& part : parts) {
    const int64_t missing = width < 0 ? 0 : width - part.size(-1);
    padded.push_back(at::constant_pad_nd(part.squeeze(0), {0, missing}, 0));
  }
  return at::cat(padded);
}

at::Tensor Layout::cu_cmp(const nsa::NsaConfig& config) const {
  std::vector<int32_t> sums{0};
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    sums.push_back(sums.back() + static_cast<int32_t>(config.num_compressed(length(i))));
  return at::tensor(sums, at::kInt);
}

}  // namespace suites::eval
