#pragma once
#include "nsa/ops/cpu/inner_loops/kernel_table.h"

namespace nsa::cpu {

/// One file each, compiled with the flags of its instruction set; x86 builds have all of them.
const KernelTable& baseline_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();

}  // namespace nsa::cpu
