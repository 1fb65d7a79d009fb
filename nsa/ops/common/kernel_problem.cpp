#include "nsa/ops/common/kernel_problem.h"

#include <ATen/ATen.h>

#include "nsa/ops/common/head_padding.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/tokens/token_kernels.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
at::Tensor addressable(const at::Tensor& x) {
  bool fits = x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
  for (int64_t axis = 0; axis < 3; ++axis) {
    fits = fits && (x.size(axis) == 1 || (x.stride(axis) > 0 && x.stride(axis) % 8 == 0));
  }
  return fits ? x : x.contiguous().clone(at::MemoryFormat::Contiguous);
}

KernelInputs::KernelInputs(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in)
    : dims(computed_head_dims(q_in, v_in)),
      q(addressable(padded_heads(q_in, dims.qk))),
      k(addressable(padded_heads(k_in, dims.qk))),
      v(addressable(padded_heads(v_in, dims.v))) {}

kernels::Strided strided(const at::Tensor& x) {
  // The stride of an axis of one place means nothing, and may be anything.
  const auto stride = [&](int64_t axis) { return x.size(axis) == 1 ? x.size(3) : x.stride(axis); };
  return {x.const_data_ptr(), stride(0), stride(1), stride(2)};
}

kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? kernels::Element::kHalf : kernels::Element::kBFloat16;
}

at::Tensor summed_parts(const at::Tensor& parts) {
  const c10::cuda::CUDAGuard guard(parts.device());
  const at::Tensor out = at::empty({parts.size(1)}, parts.options());
  kernels::ColumnSums p;
  p.parts = parts.const_data_ptr<float>();
  p.out = out.mutable_data_ptr<float>();
  p.rows = static_cast<int>(parts.size(0));
  p.columns = static_cast<int>(parts.size(1));
  check_launch(kernels::column_sums(p, c10::cuda::getCurrentCUDAStream(parts.get_device())),
               "column_sums");
  return out;
}

void check_launch(cudaError_t status, const char* op) {
  TORCH_CHECK(status == cudaSuccess, "nsa::", op, ": launch failed: ", cudaGetErrorString(status));
}
#endif

}  // namespace nsa
