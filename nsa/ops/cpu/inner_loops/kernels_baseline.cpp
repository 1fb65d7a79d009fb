// The inner loops for any processor (flags: CMakeLists.txt).
#include "nsa/ops/cpu/inner_loops/kernel_bodies.h"
#include "nsa/ops/cpu/inner_loops/kernel_sets.h"

namespace nsa::cpu {

const KernelTable& baseline_kernels() { return kTable; }

}  // namespace nsa::cpu
