#include "nsa/layer/fused/fused_tokens.h"

#include <ATen/ATen.h>

#include "nsa/ops/common/kernel_problem.h"
#include "nsa/ops/compress/fused_pool.h"
#include "nsa/ops/rope/cos_sin_table.h"
#include "nsa/ops/rope/fused_rotate.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/tokens/token_kernels.h"
#endif

namespace nsa {

bool sources_are_pooled(const NsaConfig& config) {
  return config.phi == Phi::kMean && config.rope != RopeMode::kBlockStart;
}

bool tokens_by_kernel(const NsaInputs& in, const NsaConfig& config) {
  constexpr int64_t kMostRotated = 512;
  if (config.rope != RopeMode::kNone && config.rope_pairs != RopePairs::kInterleaved) return false;
  return in.q.numel() > 0 && config.qk_head_dim <= kMostRotated && rotates_by_kernel(in.q) &&
         rotates_by_kernel(in.k_sel) && pools_by_kernel(in.v_cmp_src) &&
         in.q.size(0) * in.q.size(1) <= INT32_MAX;
}

#ifdef NSA_WITH_CUDA
namespace {

template <class Problem>
Problem problem_of(const NsaConfig& config, const at::Tensor& like, const PackedTables* packed) {
  Problem p;
  p.batch = static_cast<int>(like.size(0));
  p.num_tokens = static_cast<int>(like.size(1));
  p.num_blocks = static_cast<int>(config.num_compressed(like.size(1)));
  p.block_size = static_cast<int>(config.block_size);
  p.block_stride = static_cast<int>(config.block_stride);
  p.qk_head_dim = static_cast<int>(config.qk_head_dim);
  p.element = element_of(like);
  if (packed == nullptr) return p;
  p.num_blocks = static_cast<int>(packed->num_blocks);
  p.block_first = packed->block_first.const_data_ptr<int32_t>();
  return p;
}

/// What is returned must outlive the launch.
template <class Problem>
at::Tensor set_cos_sin(Problem& p, const NsaConfig& config, const at::Tensor& like,
                       const PackedTables* packed) {
  at::Tensor table = turns_of(config, like, packed);
  if (table.defined()) p.cos_sin = reinterpret_cast<const float2*>(table.const_data_ptr<float>());
  return table;
}

/// A launch that is being put together; keeps what it reads.
class SourcesLaunch {
 public:
  SourcesLaunch(const NsaConfig& config, const at::Tensor& like, const PackedTables* packed)
      : p_(problem_of<kernels::TokenSources>(config, like, packed)) {
    kept_.push_back(set_cos_sin(p_, config, like, packed));
  }

  at::Tensor rotated(const at::Tensor& input) {
    const at::Tensor x = keep(input), out = at::empty(x.sizes(), x.options());
    p_.copy[p_.num_copies++] = {strided(x), out.mutable_data_ptr(), static_cast<int>(x.size(2))};
    return out;
  }
  at::Tensor pooled(const at::Tensor& input, bool turned) {
    const at::Tensor x = keep(input);
    const at::Tensor out = at::empty({x.size(0), p_.num_blocks, x.size(2), x.size(3)}, x.options());
    p_.pool[p_.num_pools++] = {strided(x), out.mutable_data_ptr(), static_cast<int>(x.size(2)),
                               static_cast<int>(x.size(3)), turned};
    return out;
  }
  void run(const at::Tensor& like) {
    check_launch(kernels::token_sources(p_, c10::cuda::getCurrentCUDAStream(like.get_device())),
                 "nsa_attention");
  }

 private:
  at::Tensor keep(const at::Tensor& x) { return kept_.emplace_back(addressable(x)); }

  kernels::TokenSources p_;
  std::vector<at::Tensor> kept_;
};

}  // namespace

at::Tensor turns_of(const NsaConfig& config, const at::Tensor& like, const PackedTables* packed) {
  if (config.rope == RopeMode::kNone) return {};
  if (packed != nullptr) return packed->cos_sin;
  return cos_sin_table(like.size(1), config.qk_head_dim, config.rope_base, like.device());
}

TokenSources make_sources(const NsaInputs& in, const NsaConfig& config, bool pools,
                          const PackedTables* packed) {
  const c10::cuda::CUDAGuard guard(in.q.device());
  SourcesLaunch launch(config, in.q, packed);
  TokenSources out{in.q, in.k_sel, in.k_win, {}, {}};
  const bool turned = config.rope != RopeMode::kNone;
  if (turned) {
    out.q = launch.rotated(in.q);
    out.k_sel = launch.rotated(in.k_sel);
    out.k_win = in.k_win.is_same(in.k_sel) ? out.k_sel : launch.rotated(in.k_win);
  }
  if (pools) {
    out.k_cmp = launch.pooled(in.k_cmp_src, turned);
    out.v_cmp = launch.pooled(in.v_cmp_src, /*turned=*/false);
  }
  launch.run(in.q);
  return out;
}

std::vector<at::Tensor> join_gradients(const std::vector<GradientParts>& parts,
                                       const NsaConfig& config, const at::Tensor& like,
                                       const PackedTables* packed) {
  const c10::cuda::CUDAGuard guard(like.device());
  auto p = problem_of<kernels::TokenGradients>(config, like, packed);
  if (packed != nullptr) p.start = packed->start.const_data_ptr<int32_t>();
  std::vector<at::Tensor> results, kept{set_cos_sin(p, config, like, packed)};
  for (const GradientParts& one : parts) {
    if (one.terms.size() == 1 && !one.blocks.defined() && !one.rotated && !one.out.defined()) {
      results.push_back(one.terms[0]);
      continue;
    }
    if (one.tokens == 0) {
      results.push_back(one.out);
      continue;
    }
    kernels::TokenGradients::Of& of = p.of[p.count++];
    for (size_t i = 0; i < one.terms.size(); ++i)
      of.term[i] = kept.emplace_back(one.terms[i].contiguous()).const_data_ptr();
    // Every thread reads its own places before it writes them.
    const bool own = one.own && !one.terms.empty() && one.terms[0].is_contiguous();
    results.push_back(one.out.defined() ? one.out
                      : own ? one.terms[0]
                            : at::empty({like.size(0), like.size(1), one.num_heads, one.head_dim},
                                        like.options()));
    if (one.out.defined() && like.size(1) > 1) of.out_stride = one.out.stride(1);
    if (one.blocks.defined() && one.blocks.size(1) > 0)
      of.blocks = kept.emplace_back(one.blocks.contiguous()).const_data_ptr();
    of.out = results.back().mutable_data_ptr();
    of.num_heads = static_cast<int>(one.num_heads);
    of.head_dim = static_cast<int>(one.head_dim);
    of.rotated = one.rotated;
    of.tokens = static_cast<int>(one.tokens);
  }
  check_launch(kernels::token_gradients(p, c10::cuda::getCurrentCUDAStream(like.get_device())),
               "nsa_attention");
  return results;
}
#else
at::Tensor turns_of(const NsaConfig&, const at::Tensor&, const PackedTables*) { return {}; }

TokenSources make_sources(const NsaInputs&, const NsaConfig&, bool, const PackedTables*) {
  TORCH_CHECK(false, "nsa::nsa_attention: this build has no CUDA code");
}

std::vector<at::Tensor> join_gradients(const std::vector<GradientParts>&, const NsaConfig&,
                                       const at::Tensor&, const PackedTables*) {
  TORCH_CHECK(false, "nsa::nsa_attention: this build has no CUDA code");
}
#endif

}  // namespace nsa
