#include "suites/compare/generators.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

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
      std::vector<int64_t> one(sizes.size(), 1);
      if (!one.empty()) one.back() = sizes.back();
      return at::randn(one, generator, fp64).to(type).expand(sizes).contiguous();
    }
    case DataKind::kHugeLogits:
      return (at::randn(sizes, generator, fp64) * 100).to(type);
    case DataKind::kTinyLogits:
      return (at::randn(sizes, generator, fp64) * 0x1p-10).to(type);
  }
  TORCH_CHECK(false, "suites::make_data: unknown kind ", static_cast<int>(kind));
}

Tensor non_contiguous(const Tensor& x) {
  TORCH_CHECK(x.dim() >= 3, "suites::non_contiguous: x must have at least 3 dimensions, got ",
              x.dim());
  std::vector<int64_t> padded = x.transpose(1, 2).sizes().vec();
  padded.back() += 3;
  const Tensor store = at::full(padded, 7, x.options());
  Tensor view = store.narrow(-1, 1, x.size(-1)).transpose(1, 2);
  view.copy_(x);
  return view;
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
