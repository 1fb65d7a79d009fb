// Native Sparse Attention in a program of one's own: forward, backward, and what keeps the CUDA
// kernels from a call.
#include <ATen/ATen.h>
#include <nsa/debug.h>
#include <nsa/nsa.h>

#include <cstdio>

int main() {
  at::manual_seed(1);
  const int64_t tokens = 256, heads = 8, kv_heads = 2, dim = 64;
  const auto random = [&](int64_t h, int64_t d) {
    return at::randn({1, tokens, h, d}).requires_grad_();
  };
  const at::Tensor q = random(heads, dim), k = random(kv_heads, dim), v = random(kv_heads, dim);
  const at::Tensor gate_logits = random(heads, 3);

  const at::Tensor o = nsa::attention(q, k, v, gate_logits);
  o.sum().backward();

  // What lies between, for whoever judges the operator.
  const at::NoGradGuard no_grad;
  const nsa::Intermediates steps = nsa::attention_intermediates(q, k, v, gate_logits);
  const bool same = at::allclose(steps.o, o, 1e-4, 1e-5);
  std::printf(
      "attended blocks of the last query: %lld\n%s",
      static_cast<long long>((steps.block_idx[0][tokens - 1][0] >= 0).sum().item<int64_t>()),
      steps.ran.c_str());

  // Blocks chosen by an index of one's own, in the place of compression, window and gates.
  const at::Tensor indexed =
      nsa::msa_attention(q, k, v, at::randn({1, tokens, kv_heads, 16}), at::randn({1, tokens, 16}));

  const std::string obstacle = nsa::why_not_fused(q, k, v, gate_logits);
  std::printf("libnsa %s: o has %lld values, |d_q| = %.3f\n", nsa::version().c_str(),
              static_cast<long long>(o.numel()), q.grad().norm().item<double>());
  std::printf("CUDA kernels: %s\n", obstacle.empty() ? "used" : obstacle.c_str());
  return same && at::cat({o, indexed}).isfinite().all().item<bool>() ? 0 : 1;
}
