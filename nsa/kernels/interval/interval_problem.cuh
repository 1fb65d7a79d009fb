// A problem of interval attention for its test: sizes, data, one launch and what it leaves.
#pragma once
#include <cmath>

#include "nsa/kernels/tests/interval/interval_gpu_testing.cuh"

namespace nsa::kernels::testing {

inline __global__ void tilt_kernel(void* data, int64_t count, int width, int tokens, bool half,
                                   float base, float slope, float comb = 0.f) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int token = i / width % tokens;
    const float value = float(number(data, i, half)) + base + slope * float(token) / float(tokens) +
                        (token % 128 / 4 == 4 ? comb : 0.f);
    if (half)
      static_cast<__half*>(data)[i] = __float2half(value);
    else
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(value);
  }
}

struct Case {
  explicit Case(const Sizes& z, Code code = Code::kSm90)
      : z(z),
        tokens(int64_t(z.batch) * z.queries * z.kv_heads),
        q(tokens * z.group * z.dk * 2),
        k(int64_t(z.batch) * z.keys * z.kv_heads * z.dk * 2),
        v(int64_t(z.batch) * z.keys * z.kv_heads * z.dv * 2),
        out(tokens * z.group * z.dv * 2),
        lse(tokens * z.group * 4),
        ids(tokens * z.choice.n * 4),
        ranges(tokens * z.choice.n * 8) {
    draw_kernel<<<1024, 256>>>(q.data, int64_t(q.bytes / 2), z.half, 1, 1.5f);
    draw_kernel<<<1024, 256>>>(k.data, int64_t(k.bytes / 2), z.half, 2, 1.f);
    draw_kernel<<<1024, 256>>>(v.data, int64_t(v.bytes / 2), z.half, 3, 1.f);
    if (z.data == Data::kEqual) k.fill(0);
    if (z.data == Data::kRising || z.data == Data::kComb) {
      const bool comb = z.data == Data::kComb;
      tilt_kernel<<<1024, 256>>>(q.data, int64_t(q.bytes / 2), 1, 1, z.half, .4f, 0.f);
      tilt_kernel<<<1024, 256>>>(k.data, int64_t(k.bytes / 2), z.kv_heads * z.dk, z.keys, z.half,
                                 0.f, comb ? .2f : .8f, comb ? .5f : 0.f);
    }
    const int heads = z.kv_heads * z.group;
    p.q = dense(q, z.queries, heads, z.dk), p.k = dense(k, z.keys, z.kv_heads, z.dk);
    p.v = dense(v, z.keys, z.kv_heads, z.dv), p.out = out.data;
    p.lse = static_cast<float*>(lse.data);
    p.batch = z.batch, p.num_queries = z.queries, p.num_keys = z.keys, p.num_heads = heads;
    p.num_kv_heads = z.kv_heads, p.qk_head_dim = z.dk, p.v_head_dim = z.dv;
    p.first_position = z.first_position, p.rule = z.rule;
    p.scale = 1.f / std::sqrt(float(z.dk));
    p.element = z.half ? Element::kHalf : Element::kBFloat16;
    p.code = code;
    if (z.choice.block > 0)
      p.selection = {static_cast<int32_t*>(ids.data),
                     static_cast<int32_t*>(ranges.data),
                     z.choice.block,
                     z.choice.n,
                     z.choice.initial,
                     z.choice.local};
  }
  void forward() { check(interval_attention_forward(p, nullptr), "forward"); }
  /// NaN in `count` tokens of q, k or v.
  void poison(Buffer& b, int first, int count, int width) {
    check(cudaMemset(static_cast<char*>(b.data) + int64_t(first) * width * 2, 0xff,
                     int64_t(count) * width * 2),
          "poison");
  }
  Sizes z;
  int64_t tokens;  // (batch, query, KV head)
  Buffer q, k, v, out, lse, ids, ranges;
  IntervalAttention p;
};

template <typename X>
std::vector<X> read_as(const Buffer& b) {
  std::vector<X> host(b.bytes / sizeof(X));
  check(cudaMemcpy(host.data(), b.data, b.bytes, cudaMemcpyDeviceToHost), "read");
  return host;
}

inline Results results_of(Case& c) {
  for (Buffer* b : {&c.out, &c.lse, &c.ids, &c.ranges}) b->fill(0x7b);
  c.forward();
  check(cudaDeviceSynchronize(), "kernel");
  return {read(c.out), read_as<uint32_t>(c.lse), read_as<int32_t>(c.ids),
          read_as<int32_t>(c.ranges)};
}

}  // namespace nsa::kernels::testing
