// Blocks of threads that run together and reach each other's shared memory: clusters of sm_90. In
// sm_80 code a cluster is one block of threads.
#pragma once
#include <cuda_runtime_api.h>

namespace nsa::device::sm80 {

/// All threads of the cluster arrive, then wait; what a thread wrote before it arrived, in shared
/// memory of any rank or in global memory, is seen by those that have waited.
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
#else
  __syncthreads();
#endif
}

/// The same place in the shared memory of another rank.
template <typename V>
__device__ inline V* of_rank(V* mine, int rank) {
#if __CUDA_ARCH__ >= 900
  V* there;
  asm("mapa.u64 %0, %1, %2;\n" : "=l"(there) : "l"(mine), "r"(rank));
  return there;
#else
  return mine;
#endif
}

/// A launch that may start while the one before it ends: waits for that one and all it wrote, and
/// lets the next one start likewise. Before anything is read.
__device__ inline void follow_previous_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace nsa::device::sm80
