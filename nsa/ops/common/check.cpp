#include "nsa/ops/common/check.h"

#include <ATen/ATen.h>

#include <cmath>
#include <sstream>

namespace nsa {
namespace {

template <typename T>
std::string text_of(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string shape_of(const at::Tensor& tensor) { return "shape " + text_of(tensor.sizes()); }

std::string wanted_sizes(std::initializer_list<int64_t> sizes, const char* legend) {
  std::string text = std::string(legend) + " = [";
  bool first = true;
  for (const int64_t size : sizes) {
    text += (first ? "" : ", ") + (size < 0 ? std::string("any") : std::to_string(size));
    first = false;
  }
  return text + "]";
}

}  // namespace

double ArgumentCheck::scale(std::optional<double> given, const at::Tensor& q) const {
  if (given && !(*given > 0.0 && std::isfinite(*given))) {
    fail("scale", "positive and finite", std::to_string(*given));
  }
  return given.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))));
}

void ArgumentCheck::fail(const std::string& name, const std::string& want,
                         const std::string& have) const {
  TORCH_CHECK_VALUE(false, "nsa::", op_, ": ", name, " must be ", want, ", got ", have);
}

void ArgumentCheck::fail_type(const std::string& name, const std::string& want,
                              at::ScalarType have) const {
  TORCH_CHECK_TYPE(false, "nsa::", op_, ": ", name, " must be ", want, ", got ", have);
}

void ArgumentCheck::defined(const char* name, const at::Tensor& tensor) const {
  if (!tensor.defined()) fail(name, "a tensor", "an undefined tensor");
}

void ArgumentCheck::rank(const char* name, const at::Tensor& tensor, int64_t rank,
                         const char* legend) const {
  defined(name, tensor);
  if (tensor.dim() != rank) {
    fail(name, "of rank " + std::to_string(rank) + " " + legend, shape_of(tensor));
  }
}

void ArgumentCheck::sizes(const char* name, const at::Tensor& tensor,
                          std::initializer_list<int64_t> sizes, const char* legend) const {
  rank(name, tensor, static_cast<int64_t>(sizes.size()), legend);
  int64_t axis = 0;
  for (const int64_t size : sizes) {
    if (size >= 0 && tensor.size(axis) != size) {
      fail(name, wanted_sizes(sizes, legend), shape_of(tensor));
    }
    ++axis;
  }
}

void ArgumentCheck::floating(const char* name, const at::Tensor& tensor) const {
  defined(name, tensor);
  const at::ScalarType type = tensor.scalar_type();
  const bool accepted =
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  if (!accepted) fail_type(name, "float, double, half or bfloat16", type);
}

void ArgumentCheck::dtype(const char* name, const at::Tensor& tensor, at::ScalarType want) const {
  defined(name, tensor);
  if (tensor.scalar_type() != want) fail_type(name, text_of(want), tensor.scalar_type());
}

void ArgumentCheck::same_dtype(const char* name, const at::Tensor& tensor, const char* other_name,
                               const at::Tensor& other) const {
  if (tensor.scalar_type() != other.scalar_type()) {
    fail_type(name, text_of(other.scalar_type()) + " like " + other_name, tensor.scalar_type());
  }
}

void ArgumentCheck::same_device(const char* name, const at::Tensor& tensor, const char* other_name,
                                const at::Tensor& other) const {
  if (tensor.device() != other.device()) {
    fail(name, "on " + text_of(other.device()) + " like " + other_name, text_of(tensor.device()));
  }
}

void ArgumentCheck::same_shape(const char* name, const at::Tensor& tensor, const char* other_name,
                               const at::Tensor& other) const {
  defined(name, tensor);
  if (tensor.sizes() != other.sizes()) {
    fail(name, "of " + shape_of(other) + " like " + other_name, shape_of(tensor));
  }
}

void ArgumentCheck::least_rank(const char* name, const at::Tensor& tensor, int64_t rank,
                               const char* legend) const {
  defined(name, tensor);
  if (tensor.dim() < rank) {
    fail(name, "of rank " + std::to_string(rank) + " or more " + legend, shape_of(tensor));
  }
}

void ArgumentCheck::at_least(const char* name, int64_t value, int64_t least) const {
  if (!(value >= least)) fail(name, "at least " + std::to_string(least), std::to_string(value));
}

void ArgumentCheck::multiple(const char* name, int64_t value, int64_t divisor,
                             const char* divisor_name) const {
  if (value % divisor != 0) {
    fail(name, std::string("a multiple of ") + divisor_name + " = " + std::to_string(divisor),
         std::to_string(value));
  }
}

void ArgumentCheck::qkv(const at::Tensor& q, const char* k_name, const at::Tensor& k,
                        const char* v_name, const at::Tensor& v) const {
  rank("q", q, 4, "[B, S, Hq, dk]");
  floating("q", q);
  sizes(k_name, k, {q.size(0), -1, -1, q.size(3)}, "[B, N, Hkv, dk]");
  sizes(v_name, v, {q.size(0), k.size(1), k.size(2), -1}, "[B, N, Hkv, dv]");
  at_least("Hkv", k.size(2), 1);
  at_least("dk", q.size(3), 1);
  multiple("Hq", q.size(2), k.size(2), "Hkv");
  for (const auto& [name, tensor] : {std::pair{k_name, &k}, std::pair{v_name, &v}}) {
    same_dtype(name, *tensor, "q", q);
    same_device(name, *tensor, "q", q);
  }
}

at::ScalarType accumulation_type(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType wider_type(at::ScalarType dtype) {
  return dtype == at::kFloat ? at::kDouble : accumulation_type(dtype);
}

at::ScalarType sum_type(const at::Tensor& x) {
  return x.is_cuda() ? accumulation_type(x.scalar_type()) : wider_type(x.scalar_type());
}

at::Tensor product_of(const at::Tensor& a, const at::Tensor& b) {
  const at::NoTF32Guard whole_fp32;
  return at::bmm(a, b);
}

std::vector<int64_t> document_offsets(const char* op, const at::Tensor& cu_seqlens,
                                      int64_t num_tokens) {
  const ArgumentCheck check(op);
  check.rank("cu_seqlens", cu_seqlens, 1, "[docs + 1]");
  check.dtype("cu_seqlens", cu_seqlens, at::kInt);
  check.at_least("size of cu_seqlens", cu_seqlens.size(0), 1);
  const at::Tensor host = cu_seqlens.to(at::kCPU).contiguous();
  const int32_t* data = host.const_data_ptr<int32_t>();
  std::vector<int64_t> offsets(data, data + host.numel());
  const auto place = [](size_t i) { return "cu_seqlens[" + std::to_string(i) + "]"; };
  if (offsets.front() != 0) check.fail(place(0), "0", std::to_string(offsets.front()));
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) {
      check.fail(place(i), "at least " + place(i - 1) + " = " + std::to_string(offsets[i - 1]),
                 std::to_string(offsets[i]));
    }
  }
  if (offsets.back() != num_tokens) {
    check.fail(place(offsets.size() - 1), "T = " + std::to_string(num_tokens),
               std::to_string(offsets.back()));
  }
  return offsets;
}

}  // namespace nsa
