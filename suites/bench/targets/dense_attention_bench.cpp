#include "suites/bench/targets/dense_attention_bench.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

namespace suites {
namespace {

/// Only `library` may run; what was allowed before is restored.
class OnlyLibrary {
 public:
  explicit OnlyLibrary(DenseLibrary library)
      : flash_(context_.userEnabledFlashSDP()),
        cudnn_(context_.userEnabledCuDNNSDP()),
        efficient_(context_.userEnabledMemEfficientSDP()),
        math_(context_.userEnabledMathSDP()) {
    set(library == DenseLibrary::kFlash, library == DenseLibrary::kCudnn, false, false);
  }
  ~OnlyLibrary() { set(flash_, cudnn_, efficient_, math_); }
  OnlyLibrary(const OnlyLibrary&) = delete;
  OnlyLibrary& operator=(const OnlyLibrary&) = delete;

 private:
  void set(bool flash, bool cudnn, bool efficient, bool math) {
    context_.setSDPUseFlash(flash);
    context_.setSDPUseCuDNN(cudnn);
    context_.setSDPUseMemEfficient(efficient);
    context_.setSDPUseMath(math);
  }
  at::Context& context_ = at::globalContext();
  bool flash_, cudnn_, efficient_, math_;
};

}  // namespace

at::Tensor dense_causal(const DenseInputs& in, DenseLibrary library) {
  const OnlyLibrary only(library);
  const int64_t dk = in.q.size(3), dv = in.v_sel.size(3);
  at::Tensor v = in.v_sel;
  if (library == DenseLibrary::kFlash && dv < dk) v = at::constant_pad_nd(v, {0, dk - dv});
  const at::Tensor o = at::scaled_dot_product_attention(
      in.q.transpose(1, 2), in.k_sel.transpose(1, 2), v.transpose(1, 2), std::nullopt, 0.0,
      /*is_causal=*/true, std::nullopt, /*enable_gqa=*/in.q.size(2) != in.k_sel.size(2));
  return o.transpose(1, 2).narrow(3, 0, dv);
}

std::string to_string(DenseLibrary library) {
  return library == DenseLibrary::kCudnn ? "cudnn" : "flash";
}

}  // namespace suites
