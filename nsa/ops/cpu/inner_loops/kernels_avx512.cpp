// The inner loops for AVX-512 (flags: CMakeLists.txt).
#include "nsa/ops/cpu/kernel_bodies.h"
#include "nsa/ops/cpu/kernel_sets.h"

namespace nsa::cpu {

const KernelTable& avx512_kernels() { return kTable; }

}  // namespace nsa::cpu
