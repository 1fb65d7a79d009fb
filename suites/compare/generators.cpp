#include "suites/compare/generators.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

namespace suites {

using at::Tensor;

std::string_view data_kind_name(DataKind kind) {
  switch (kind) {
    case DataKind::kNormal:
      return "normal";
    case DataKind::kSmallInteger:
      return "small_integer";
    case DataKind::kTies:
      return "ties";
    case DataKind::kHugeLogits:
      return "huge_logits";
    case DataKind::kTinyLogits:
      return "tiny_logits";
  }
  return "?";
}

const std::vector<DataKind>& all_data_kinds() {
  static const std::vector<DataKind> kinds = {DataKind::kNormal, DataKind::kSmallInteger,
                                              DataKind::kTies, DataKind::kHugeLogits,
                                              DataKind::kTinyLogits};
  return kinds;
}

at::Generator make_generator(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

Tensor make_data(at::IntArrayRef sizes, DataKind kind, at::Generator& generator,
                 at::ScalarType type) {
  const auto fp64 = at::TensorOptions().dtype(at::kDouble);
  switch (kind) {
    case DataKind::kNormal:
      return at::randn(sizes, generator, fp64).to(type);
    case DataKind::kSmallInteger:
      return at::randint(-2, 3, sizes, generator, fp64).to(type);
    case DataKind::kTies: {
      std::vector<int64_t> one = sizes.vec();
      if (one.size() > 1) one[1] = std::min<int64_t>(one[1], 1);
      return at::randn(one, generator, fp64).to(type).expand(sizes).contiguous();
    }
    case DataKind::kHugeLogits:
      return (at::randn(sizes, generator, fp64) * 100).to(type);
    case DataKind::kTinyLogits:
      return (at::randn(sizes, generator, fp64) * 0x1p-10).to(type);
  }
  TORCH_CHECK(false, "suites::make_data: unknown kind ", static_cast<int>(kind));
}

const std::vector<Layout>& all_layouts() {
  static const std::vector<Layout> layouts = {Layout::kContiguous, Layout::kStrided,
                                              Layout::kSliced, Layout::kExpanded};
  return layouts;
}

std::string_view layout_name(Layout layout) {
  switch (layout) {
    case Layout::kContiguous:
      return "contiguous";
    case Layout::kStrided:
      return "strided";
    case Layout::kSliced:
      return "sliced";
    case Layout::kExpanded:
      return "expanded";
  }
  return "?";
}

Tensor lay_out(const Tensor& x, Layout layout) {
  constexpr double kFiller = 7;
  TORCH_CHECK(x.dim() >= 3, "suites::lay_out: x must have at least 3 dimensions, got ", x.dim());
  switch (layout) {
    case Layout::kContiguous:
      return x.contiguous();
    case Layout::kStrided:
      return at::constant_pad_nd(x.transpose(1, 2), {1, 2}, kFiller)
          .narrow(-1, 1, x.size(-1))
          .transpose(1, 2);
    case Layout::kSliced:
      return at::stack({at::full_like(x, kFiller), x}, 2)
          .flatten(1, 2)
          .slice(1, 1, 2 * x.size(1), 2);
    case Layout::kExpanded:
      return x.narrow(2, 0, std::min<int64_t>(1, x.size(2))).expand_as(x);
  }
  TORCH_CHECK(false, "suites::lay_out: unknown layout ", static_cast<int>(layout));
}

Tensor poison_after(const Tensor& x, int64_t t, double value) {
  Tensor copy = x.detach().clone();
  if (t + 1 < x.size(1)) copy.narrow(1, t + 1, x.size(1) - t - 1).fill_(value);
  return copy;
}

Tensor randomize_after(const Tensor& x, int64_t t, at::Generator& generator) {
  Tensor copy = x.detach().clone();
  if (t + 1 >= x.size(1)) return copy;
  Tensor tail = copy.narrow(1, t + 1, x.size(1) - t - 1);
  tail.copy_(at::randn(tail.sizes(), generator, at::TensorOptions().dtype(at::kDouble)));
  return copy;
}

}  // namespace suites
