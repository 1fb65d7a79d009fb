#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace suites {

/// Counts calls whose tensors differ in any bit from those of the first call. The comparison is
/// made on their device; nothing waits for it before differing().
class RepeatedBits {
 public:
  /// Throws c10::Error where the tensors are not as many, of the sizes and types of the first call.
  void add(const std::vector<at::Tensor>& tensors);
  int64_t calls() const { return calls_; }
  int64_t differing() const;

 private:
  std::vector<at::Tensor> first_;
  at::Tensor differing_;
  int64_t calls_ = 0;
};

/// Runs forward and backward `times` times on the same inputs, for each of repeated_cases() whose
/// id contains `filter`: a line each in `text`; returns how many calls differed in output, block
/// ids or gradients, a case that could not run counting as one. Throws std::invalid_argument where
/// no case has that in its id.
int64_t repeat_calls(at::Device device, const std::string& filter, int64_t times, uint64_t seed,
                     std::string& text);

}  // namespace suites
