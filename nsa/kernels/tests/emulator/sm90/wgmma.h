// Products of warpgroups (wgmma). They are computed when they are issued or when they are waited
// for, by the order's seed; until then operands are not read and accumulators stay as they were.
// Each warp computes its 16 rows; the four must issue the same products.
#pragma once
#include <cstdint>

namespace nsa::kernels::emulator {

/// d (+)= a b: 64 x columns, 16 products each; of 16-bit values, summed in fp32.
struct WarpgroupProduct {
  int columns;
  bool half;                         // values are fp16, else bf16
  bool a_by_columns, b_by_rows;      // MN-major operands in shared memory
  bool a_in_registers, accumulates;  // else d begins with 0
  uint64_t a, b;                     // descriptors
  const uint32_t* a_registers;       // four, of this thread
  float* d;                          // columns / 2, of this thread
};
void start_product(const WarpgroupProduct& product);
/// wgmma.fence, wgmma.commit_group, wgmma.wait_group.
void fence_products();
void commit_products();
void wait_products(int pending);

void begin_products(int warps);  // of a block
void end_products();

}  // namespace nsa::kernels::emulator
