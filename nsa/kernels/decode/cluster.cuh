// Blocks of threads that run together and reach each other's shared memory: clusters of sm_90. In
// sm_80 code a cluster is one block of threads.
#pragma once
#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels::portable {

/// All threads of the cluster arrive, then wait: nothing that one of them has written is seen by
/// the others for that, but what they have done before is over. (An arrival that releases waits for
/// all its thread's global memory, some 1,000 cycles.)
__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;\n" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
#else
  __syncthreads();
#endif
}

/// Counts the bytes that ranks put into this block's shared memory: it is opened once, by one
/// thread, before `arrivals_are_open` and the cluster's first arrival.
using Arrivals = uint64_t;
__device__ __forceinline__ void open_arrivals(Arrivals* counter, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n" ::"r"(shared_address(counter))
               : "memory");
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(counter)),
      "r"(bytes)
      : "memory");
#endif
}
__device__ __forceinline__ void arrivals_are_open() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
#endif
}
/// All bytes are there. Every thread that reads them waits.
__device__ __forceinline__ void wait_for(Arrivals* counter) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred p;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n"
      "@!p bra AGAIN;\n}\n" ::"r"(shared_address(counter))
      : "memory");
#else
  __syncthreads();
#endif
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t address_there(const void* mine, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n"
      : "=r"(there)
      : "r"(shared_address(mine)), "r"(rank));
  return there;
}
#define NSA_PUT(type, registers, ...)                                            \
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes" type \
               " [%0], " registers ", [%1];\n" ::"r"(address_there(mine, rank)), \
               "r"(address_there(counter, rank)), __VA_ARGS__                    \
               : "memory")
#else
#define NSA_PUT(type, registers, ...) *mine = value
#endif
/// Puts a value into the same place of another rank's shared memory, where it is counted.
__device__ __forceinline__ void put(float4* mine, int rank, float4 value, Arrivals* counter) {
  NSA_PUT(".v4.f32", "{%2, %3, %4, %5}", "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w));
}
__device__ __forceinline__ void put(float2* mine, int rank, float2 value, Arrivals* counter) {
  NSA_PUT(".v2.f32", "{%2, %3}", "f"(value.x), "f"(value.y));
}
__device__ __forceinline__ void put(float* mine, int rank, float value, Arrivals* counter) {
  NSA_PUT(".f32", "%2", "f"(value));
}
__device__ __forceinline__ void put(int* mine, int rank, int value, Arrivals* counter) {
  NSA_PUT(".s32", "%2", "r"(value));
}
__device__ __forceinline__ void put(uint64_t* mine, int rank, uint64_t value, Arrivals* counter) {
  NSA_PUT(".b64", "%2", "l"(value));
}
#undef NSA_PUT

/// Lets the next launch start while this one runs, where it may.
__device__ inline void begin_next_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
/// Waits for the launch before and all it wrote: before anything is read.
__device__ inline void end_previous_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace nsa::kernels::portable
