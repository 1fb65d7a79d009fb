// The inner loops for AVX2 (flags: CMakeLists.txt).
#include "nsa/ops/cpu/inner_loops/kernel_bodies.h"
#include "nsa/ops/cpu/inner_loops/kernel_sets.h"

namespace nsa::cpu {

static_assert(Vector::kLanes == 8, "compiled without the flags of this instruction set");

const KernelTable& avx2_kernels() { return kTable; }

}  // namespace nsa::cpu
