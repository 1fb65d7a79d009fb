#include "nsa/ops/select/fused_index.h"

#include <ATen/ATen.h>

#include "nsa/backend/kernel_code.h"
#include "nsa/ops/common/kernel_problem.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/index/index_selection.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

/// `k` [B, S, 1, di].
kernels::IndexSelection problem_of(const at::Tensor& q, const at::Tensor& k,
                                   const NsaConfig& config) {
  kernels::IndexSelection p;
  p.q = strided(q), p.k = strided(k);
  p.batch = static_cast<int>(q.size(0));
  p.num_tokens = static_cast<int>(q.size(1));
  p.num_heads = static_cast<int>(q.size(2));
  p.head_dim = static_cast<int>(q.size(3));
  p.block_size = static_cast<int>(std::min<int64_t>(config.sel_block_size, INT32_MAX));
  p.top_n = static_cast<int>(std::min<int64_t>(config.top_n, INT32_MAX));
  p.element = element_of(q);
  return p;
}

}  // namespace

KernelChoice choose_index_kernel(const at::Tensor& q_idx, const at::Tensor& k_idx,
                                 const NsaConfig& config) {
  const KernelChoice kernel = choose_kernel(q_idx, {.family = KernelFamily::kIndex});
  if (!kernel.runs()) return kernel;
  if (q_idx.size(0) * q_idx.size(1) > INT32_MAX)
    return kernel.unless("a size does not fit 32 bits");
  kernels::IndexSelection p = problem_of(q_idx, k_idx.unsqueeze(2), config);
  p.q = p.k = {};  // sizes only: another layout is copied first
  return kernel.unless(kernels::unsupported_reason(p));
}

at::Tensor select_by_index(const at::Tensor& q_idx, const at::Tensor& k_idx,
                           const NsaConfig& config) {
  const c10::cuda::CUDAGuard guard(q_idx.device());
  const at::Tensor q = addressable(q_idx.detach()), k = addressable(k_idx.detach().unsqueeze(2));
  at::Tensor ids =
      at::empty({q.size(0), q.size(1), q.size(2), config.top_n}, q.options().dtype(at::kInt));
  kernels::IndexSelection p = problem_of(q, k, config);
  p.block_idx = ids.mutable_data_ptr<int32_t>();
  check_launch(kernels::select_by_index(p, c10::cuda::getCurrentCUDAStream(q.get_device())),
               "select_by_index");
  return ids;
}
#else
KernelChoice choose_index_kernel(const at::Tensor& q_idx, const at::Tensor&, const NsaConfig&) {
  return choose_kernel(q_idx, {.family = KernelFamily::kIndex});
}

at::Tensor select_by_index(const at::Tensor&, const at::Tensor&, const NsaConfig&) {
  TORCH_CHECK(false, "nsa::select_by_index: this build has no CUDA code");
}
#endif

}  // namespace nsa
