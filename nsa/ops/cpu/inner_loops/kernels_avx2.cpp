// The inner loops for AVX2 (flags: CMakeLists.txt).
#include "nsa/ops/cpu/kernel_bodies.h"
#include "nsa/ops/cpu/kernel_sets.h"

namespace nsa::cpu {

const KernelTable& avx2_kernels() { return kTable; }

}  // namespace nsa::cpu
