#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "suites/eval/layout.h"
#include "suites/reference_cases/tensor_files.h"

namespace suites::eval {

/// The tensors of an input file, checked one by one as an operator takes them. Every error is an
/// nsa::InputError that begins with the tensor's name.
class InputTensors {
 public:
  /// Floating inputs become `dtype` on `device`; with `grad` they are leaves of the graph.
  InputTensors(std::map<std::string, FileTensor> tensors, at::ScalarType dtype, at::Device device,
               bool grad);

  /// True when the file has it; the name counts as one that this run would have read.
  bool has(const std::string& name);
  /// The shape in the file. Throws when the tensor is missing.
  const std::vector<int64_t>& shape(const std::string& name);

  /// A differentiable input.
  at::Tensor input(const std::string& name, const Axes& axes);
  /// A gradient that arrives from outside: like an input, but nothing is differentiated by it.
  at::Tensor upstream(const std::string& name, const Axes& axes);
  /// Values taken in the accumulation type of `dtype` (scores, p_cmp).
  at::Tensor accumulated(const std::string& name, const Axes& axes);
  /// int32 or int64, as in the file.
  at::Tensor ids(const std::string& name, const Axes& axes);
  /// int32.
  at::Tensor indices(const std::string& name, const Axes& axes);

  /// The inputs taken by `input`, in that order.
  const std::vector<std::pair<std::string, at::Tensor>>& leaves() const { return leaves_; }

  /// Call when everything is read. Names that the file has and nothing read: an error for one that
  /// looks like a misspelt name of this run, else one line for all that are no known input.
  std::string unread();

  at::ScalarType dtype() const { return dtype_; }
  at::Device device() const { return device_; }

 private:
  const FileTensor& checked(const std::string& name, const Axes& axes);
  at::Tensor floating(const std::string& name, const Axes& axes, at::ScalarType dtype);
  [[noreturn]] void missing(const std::string& name) const;

  std::map<std::string, FileTensor> tensors_;
  at::ScalarType dtype_;
  at::Device device_;
  bool grad_;
  std::set<std::string> asked_;
  std::vector<std::pair<std::string, at::Tensor>> leaves_;
};

}  // namespace suites::eval
