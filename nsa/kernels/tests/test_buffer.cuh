// Device memory of a test.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <typename V>
struct Buffer {
  V* data = nullptr;
  size_t count = 0;
  explicit Buffer(size_t n) : count(n) {
    check(cudaMalloc(reinterpret_cast<void**>(&data), (n + 1) * sizeof(V)), "cudaMalloc");
  }
  Buffer(size_t n, int byte) : Buffer(n) { fill(byte); }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data); }
  std::vector<V> host(size_t most = SIZE_MAX) const {
    std::vector<V> copy(std::min(count, most));
    check(cudaMemcpy(copy.data(), data, copy.size() * sizeof(V), cudaMemcpyDeviceToHost), "copy");
    return copy;
  }
  void set(const std::vector<V>& from) {
    check(cudaMemcpy(data, from.data(), from.size() * sizeof(V), cudaMemcpyHostToDevice), "copy");
  }
  void copy(const Buffer& from) {
    check(cudaMemcpy(data, from.data, count * sizeof(V), cudaMemcpyDeviceToDevice), "copy");
  }
  void fill(int byte) { check(cudaMemset(data, byte, count * sizeof(V)), "memset"); }
};

}  // namespace
