#pragma once
#include <cstdint>

#include "nsa/backend/kernel_choice.h"

/// Which kernels run a call of the whole operator on a card, from sizes alone: what `auto` does,
/// without tensors and in every build.
namespace nsa {

/// What the choice depends on of a call with 1 / sqrt(dk) as scale and a window.
struct WholeCall {
  bool sixteen_bits = true;
  int64_t num_heads = 1, num_kv_heads = 1, qk_head_dim = 64, v_head_dim = 64;
  int64_t block_size = 32, block_stride = 16, sel_block_size = 64, top_n = 16;  ///< l, d, l', n
  int64_t num_keys = 65536;
};

/// Forward and backward of a branch run the same code, or neither has a kernel.
struct BranchChoices {
  KernelChoice compressed;  ///< with the choice of blocks
  KernelChoice window;
  KernelChoice selected;  ///< of the backward pass where both passes have one
};
BranchChoices choose_branches(const WholeCall& call, const CardFacts& card,
                              const std::string& wanted_code);

}  // namespace nsa
