// What a launch of interval attention left, judged by loops in fp64 over the same numbers.
#pragma once
#include "nsa/kernels/interval/interval_problem.cuh"

namespace nsa::kernels::testing {

/// Sample i is token (batch, query, KV head) i * step; a block of 128 threads each. Output rows
/// [group][dv], lse [group] and block scores [blocks], all of them plain sums.
inline __global__ void reference_kernel(Sizes z, const void* q, const void* k, const void* v,
                                        int64_t step, int blocks, double* out, double* lse,
                                        double* scores) {
  extern __shared__ double shared[];
  double *weights = shared, *sums = shared + z.keys;
  const int64_t token = blockIdx.x * step;
  const int kv_head = token % z.kv_heads, query = token / z.kv_heads % z.queries,
            batch = token / z.kv_heads / z.queries;
  int begin, end;
  keys_of(z.rule, z.first_position + query, z.keys, begin, end);
  const auto key_row = [&](int key) {
    return (int64_t(batch) * z.keys + key) * z.kv_heads + kv_head;
  };
  for (int key = threadIdx.x; key < z.keys; key += 128) sums[key] = 0;
  for (int h = 0; h < z.group; ++h) {
    const int64_t row = token * z.group + h;
    double part = 0;
    for (int key = begin + threadIdx.x; key < end; key += 128) {
      weights[key] =
          exp(dot(q, row * z.dk, k, key_row(key) * z.dk, z.dk, z.half) / sqrt(double(z.dk)));
      part += weights[key];
    }
    const double sum = sum_of_block(part);
    for (int key = begin + threadIdx.x; key < end; key += 128) sums[key] += weights[key] / sum;
    const int64_t place = int64_t(blockIdx.x) * z.group + h;
    for (int c = threadIdx.x; c < z.dv; c += 128) {
      double total = 0;
      for (int key = begin; key < end; ++key)
        total += weights[key] * number(v, key_row(key) * z.dv + c, z.half);
      out[place * z.dv + c] = end > begin ? total / sum : 0;
    }
    if (threadIdx.x == 0) lse[place] = end > begin ? log(sum) : -INFINITY;
    __syncthreads();
  }
  if (blocks == 0) return;
  const int strides = z.choice.block / z.rule.stride, overlap = z.rule.extent / z.rule.stride - 1;
  for (int j = threadIdx.x; j < blocks; j += 128) {
    double total = 0;
    for (int i = max(0, j * strides - overlap); i < min(end, (j + 1) * strides); ++i)
      total += (min(i + overlap + 1, (j + 1) * strides) - max(i, j * strides)) * sums[i];
    scores[int64_t(blockIdx.x) * blocks + j] = total;
  }
}

/// Compares every `step`-th token with fp64.
inline void compare(Case& c, const Results& r, int64_t step) {
  const Sizes& z = c.z;
  const int64_t samples = (c.tokens + step - 1) / step;
  const int blocks =
      z.choice.block > 0 ? (z.first_position + z.queries + z.choice.block - 1) / z.choice.block : 0;
  Buffer out(samples * z.group * z.dv * 8), lse(samples * z.group * 8),
      scores(samples * blocks * 8);
  check(cudaFuncSetAttribute(reference_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             200 * 1024),
        "attribute");
  // A window's keys begin anywhere, so there is a place for every key.
  reference_kernel<<<unsigned(samples), 128, size_t(z.keys) * 16>>>(
      z, c.q.data, c.k.data, c.v.data, step, blocks, static_cast<double*>(out.data),
      static_cast<double*>(lse.data), static_cast<double*>(scores.data));
  check(cudaGetLastError(), "reference");
  check(cudaDeviceSynchronize(), "reference");
  compare_rows(z, r, read_as<double>(out), read_as<double>(lse), step);
  if (blocks > 0) compare_blocks(z, r, read_as<double>(scores), blocks, samples, step);
}

/// Tokens of `r` for which `counts(batch, position)` holds have the bits they have in `s`.
template <class Counts>
void compare_bits(const Case& c, const Results& r, const Results& s, const char* what,
                  const Counts& counts) {
  const Sizes& z = c.z;
  int64_t wrong = 0, compared = 0;
  const auto differ = [](const auto& x, const auto& y, int64_t token, int64_t width) {
    return !std::equal(x.begin() + token * width, x.begin() + (token + 1) * width,
                       y.begin() + token * width);
  };
  for (int64_t token = 0; token < c.tokens; ++token) {
    if (!counts(int(token / z.kv_heads / z.queries), int(token / z.kv_heads % z.queries))) continue;
    ++compared;
    wrong += differ(r.out, s.out, token, int64_t(z.group) * z.dv) ||
             differ(r.lse, s.lse, token, z.group) || differ(r.ids, s.ids, token, z.choice.n) ||
             differ(r.ranges, s.ranges, token, 2 * z.choice.n);
  }
  report(compared > 0 && wrong == 0, what, double(wrong), "of " + std::to_string(compared));
}

}  // namespace nsa::kernels::testing
