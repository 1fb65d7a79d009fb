#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/backend/kernel_choice.h"
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// The kernels of a call of packed documents, forward and backward, or what keeps it from them.
/// Window and compressed branch are differentiated by the kernel of the selected branch, which
/// takes any ranges of keys. A question of sizes, type and device: nothing is read from a device.
struct PackedKernels {
  KernelChoice cmp, win, sel;  ///< sel: backward, of all three branches
  KernelChoice sel_rows;       ///< the forward pass of the selected branch, in the order of rows
  bool sel_by_keys = false;    ///< it goes in the order of keys instead
  int64_t longest = 0;         ///< tokens of a document: the caller's bound, or all
  std::string obstacle;
};
/// Inputs [T, ...] as of packed_attention, checked. `num_ids`: blocks that a query selects.
PackedKernels choose_packed(const NsaInputs& inputs, const NsaConfig& config, int64_t num_ids);

/// What the kernels read about packed documents, made on the device from cu_seqlens in one launch.
/// Means of blocks have T / d rows, those of a document from row start / d on.
struct PackedTables {
  PackedKernels kernels;
  int64_t num_blocks = 0;             ///< rows of means of blocks
  at::Tensor start, position;         ///< int32 [T]: first token of the document, place in it
  at::Tensor block_first;             ///< int32 [num_blocks] first token, -1: a row of zeros
  at::Tensor poison;                  ///< float [T] 0, or NaN where offsets or bound are broken
  at::Tensor win_ranges, cmp_ranges;  ///< int32 [1, T, Hkv, 1, 2]; with `backward`
  at::Tensor cmp_tiles, win_tiles;    ///< int32 [n, 4]; without `backward`
  at::Tensor cos_sin;                 ///< float [T, dk / 2, 2] of a token; undefined: not rotated

  int64_t sel_tiles(const NsaConfig& config, int64_t num_ids) const;  ///< of a row, at most
  int64_t win_tiles_of_row(const NsaConfig& config) const;
  int64_t cmp_tiles_of_row(const NsaConfig& config) const;
};
/// Only with kernels without an obstacle; builds with CUDA code. No host synchronisation.
PackedTables make_packed_tables(const NsaInputs& inputs, const NsaConfig& config,
                                const PackedKernels& kernels, bool backward);

}  // namespace nsa
