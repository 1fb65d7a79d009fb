// Native Sparse Attention in a program of one's own: forward, backward, and what keeps the CUDA
// kernels from a call.
#include <ATen/ATen.h>
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

  const std::string obstacle = nsa::why_not_fused(q, k, v, gate_logits);
  std::printf("libnsa %s: o has %lld values, |d_q| = %.3f\n", nsa::version().c_str(),
              static_cast<long long>(o.numel()), q.grad().norm().item<double>());
  std::printf("CUDA kernels: %s\n", obstacle.empty() ? "used" : obstacle.c_str());
  return o.isfinite().all().item<bool>() ? 0 : 1;
}
