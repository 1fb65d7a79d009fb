#include "suites/eval/inputs.h"

#include <ATen/ATen.h>

#include "base/text/nearest.h"
#include "nsa/ops/common/check.h"
#include "nsa/program/input_error.h"
#include "suites/eval/tensors.h"

namespace suites::eval {
namespace {

/// Inputs of any operator; a file may hold more than one run reads.
const std::set<std::string> kKnown = {
    "q",        "k_cmp_src", "v_cmp_src",   "k_sel",      "v_sel",    "k_win",
    "v_win",    "gates",     "gate_logits", "conv_k",     "conv_v",   "phi_k.pe",
    "phi_k.w1", "phi_k.b1",  "phi_k.w2",    "phi_k.b2",   "phi_v.pe", "phi_v.w1",
    "phi_v.b1", "phi_v.w2",  "phi_v.b2",    "cu_seqlens", "d_o",      "d_k_cmp",
    "d_v_cmp",  "d_logits",  "w1",          "b1",         "w2",       "b2"};

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw nsa::InputError(name + ": " + what);
}

template <class T>
std::string list(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_same_v<T, std::string>)
      text += value;
    else
      text += value < 0 ? std::string("any") : std::to_string(value);
  }
  return "[" + text + "]";
}

/// A shorter name that is misspelt cannot be distinguished from another name.
bool likely_typo(const std::string& name, const std::string& nearest) {
  return !nearest.empty() && name.size() >= 5;
}

}  // namespace

InputTensors::InputTensors(std::map<std::string, FileTensor> tensors, at::ScalarType dtype,
                           at::Device device, bool grad)
    : tensors_(std::move(tensors)), dtype_(dtype), device_(device), grad_(grad) {}

bool InputTensors::has(const std::string& name) {
  asked_.insert(name);
  return tensors_.contains(name);
}

const std::vector<int64_t>& InputTensors::shape(const std::string& name) {
  if (!has(name)) missing(name);
  return tensors_.at(name).shape;
}

at::Tensor InputTensors::input(const std::string& name, const Axes& axes) {
  const at::Tensor tensor = floating(name, axes, dtype_);
  if (grad_) tensor.requires_grad_(true);
  leaves_.emplace_back(name, tensor);
  return tensor;
}

at::Tensor InputTensors::upstream(const std::string& name, const Axes& axes) {
  return floating(name, axes, dtype_);
}

at::Tensor InputTensors::accumulated(const std::string& name, const Axes& axes) {
  return floating(name, axes, nsa::accumulation_type(dtype_));
}

at::Tensor InputTensors::indices(const std::string& name, const Axes& axes) {
  const FileTensor& tensor = checked(name, axes);
  if (tensor.dtype != Dtype::kI32)
    fail(name, "dtype must be I32, got " + std::string(name_of(tensor.dtype)));
  return to_aten(tensor, at::kInt, device_);
}

at::Tensor InputTensors::ids(const std::string& name, const Axes& axes) {
  const FileTensor& tensor = checked(name, axes);
  if (tensor.dtype == Dtype::kI64) return to_aten(tensor, at::kLong, device_);
  if (tensor.dtype == Dtype::kI32) return to_aten(tensor, at::kInt, device_);
  fail(name, "dtype must be I32 or I64, got " + std::string(name_of(tensor.dtype)));
}

std::string InputTensors::unread() {
  std::string ignored;
  for (const auto& [name, _] : tensors_) {
    if (asked_.contains(name) || kKnown.contains(name) || name.starts_with("expected.")) continue;
    std::vector<std::string> absent;
    for (const std::string& asked : asked_)
      if (!tensors_.contains(asked)) absent.push_back(asked);
    const std::string nearest = base::nearest_name(name, absent);
    if (likely_typo(name, nearest))
      fail(name, "unknown tensor; did you mean '" + nearest + "'? Rename or remove it");
    ignored += (ignored.empty() ? "" : ", ") + name;
  }
  return ignored;
}

at::Tensor InputTensors::floating(const std::string& name, const Axes& axes, at::ScalarType dtype) {
  const FileTensor& tensor = checked(name, axes);
  if (!nsa::tensor_file::is_floating(tensor.dtype))
    fail(name,
         "dtype must be F64, F32, F16, BF16 or F8, got " + std::string(name_of(tensor.dtype)));
  return to_aten(tensor, dtype, device_);
}

const FileTensor& InputTensors::checked(const std::string& name, const Axes& axes) {
  std::vector<std::string> names;
  std::vector<int64_t> sizes;
  for (const Axis& axis : axes) {
    names.push_back(axis.name);
    sizes.push_back(axis.size);
  }
  const std::vector<int64_t>& have = shape(name);
  bool fits = have.size() == sizes.size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) fits = sizes[i] < 0 || sizes[i] == have[i];
  if (!fits)
    fail(name, "shape must be " + list(names) + " = " + list(sizes) + ", got " + list(have));
  return tensors_.at(name);
}

void InputTensors::missing(const std::string& name) const {
  std::vector<std::string> unread;
  for (const auto& [other, _] : tensors_)
    if (!asked_.contains(other) && !kKnown.contains(other) && !other.starts_with("expected."))
      unread.push_back(other);
  const std::string nearest = base::nearest_name(name, unread);
  fail(name, "the input file has no such tensor" +
                 (nearest.empty() ? std::string() : "; is it '" + nearest + "'?"));
}

}  // namespace suites::eval
