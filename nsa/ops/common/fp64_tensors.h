#pragma once
// For tests: whether a call computes in fp64.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>

namespace nsa {

inline std::atomic<int64_t>& most_fp64_elements() {
  static std::atomic<int64_t> most{0};
  return most;
}

/// The most elements of an fp64 tensor that an operator of LibTorch made while `call` ran, on any
/// thread.
inline int64_t largest_fp64_result(const std::function<void()>& call) {
  most_fp64_elements() = 0;
  const auto begin = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
    return nullptr;
  };
  const auto end = [](const at::RecordFunction& fn, at::ObserverContext*) {
    const auto count = [](const at::Tensor& x) {
      if (!x.defined() || x.scalar_type() != at::kDouble) return;
      int64_t most = most_fp64_elements();
      while (x.numel() > most && !most_fp64_elements().compare_exchange_weak(most, x.numel())) {
      }
    };
    for (const c10::IValue& value : fn.outputs()) {
      if (value.isTensor()) count(value.toTensor());
      if (value.isTensorList())
        for (const at::Tensor& x : value.toTensorVector()) count(x);
    }
  };
  const at::CallbackHandle handle = at::addGlobalCallback(at::RecordFunctionCallback(begin, end)
                                                              .needsOutputs(true)
                                                              .scopes({at::RecordScope::FUNCTION}));
  call();
  at::removeCallback(handle);
  return most_fp64_elements();
}

}  // namespace nsa
