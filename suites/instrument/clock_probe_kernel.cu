// Reads the SM clock against the wall clock of the device.
#include "suites/instrument/clock_probe_launch.h"

namespace suites {
namespace {

__device__ int64_t wall_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return static_cast<int64_t>(ns);
}

__global__ void clock_probe_kernel(int64_t* readings, int64_t spin_ns) {
  // Start at a tick of globaltimer, which some devices advance in steps of about 1 us.
  const int64_t before = wall_ns();
  int64_t start_ns = wall_ns();
  while (start_ns == before) start_ns = wall_ns();
  const int64_t start_cycles = clock64();
  int64_t now = start_ns;
  while (now - start_ns < spin_ns) now = wall_ns();
  readings[0] = clock64() - start_cycles;
  readings[1] = now - start_ns;
}

}  // namespace

cudaError_t clock_probe_launch(int64_t* readings, int64_t spin_ns, cudaStream_t stream) {
  clock_probe_kernel<<<1, 1, 0, stream>>>(readings, spin_ns);
  return cudaGetLastError();
}

}  // namespace suites
