// The inner loops for AVX-512 (flags: CMakeLists.txt).
#include "nsa/ops/cpu/inner_loops/kernel_bodies.h"
#include "nsa/ops/cpu/inner_loops/kernel_sets.h"

namespace nsa::cpu {

static_assert(Vector::kLanes == 16, "compiled without the flags of this instruction set");

const KernelTable& avx512_kernels() { return kTable; }

}  // namespace nsa::cpu
