#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/layer/fused/packed_tables.h"
#include "nsa/layer/nsa_attention.h"

/// What stands between the inputs of a call and its branches, each direction in one launch; outside
/// of autograd.
namespace nsa {

/// Whether the kernels rotate, and pool where the configuration pools by the mean, these inputs;
/// they turn interleaved pairs only.
bool tokens_by_kernel(const NsaInputs& inputs, const NsaConfig& config);

/// Whether make_sources can pool: phi is the mean, and no block is rotated behind it.
bool sources_are_pooled(const NsaConfig& config);

/// What the branches read; members that need no kernel are the inputs themselves.
struct TokenSources {
  at::Tensor q, k_sel, k_win;  ///< rotated
  at::Tensor k_cmp, v_cmp;     ///< means of blocks
};
/// `pools`: with k_cmp and v_cmp, where sources_are_pooled. Only where tokens_by_kernel. `packed`:
/// of packed documents as one sequence, or null.
TokenSources make_sources(const NsaInputs& inputs, const NsaConfig& config, bool pools,
                          const PackedTables* packed = nullptr);

/// The gradient of one input as its parts, [B, S, H, D] all.
struct GradientParts {
  std::vector<at::Tensor> terms;  ///< of the rotated tensor, four at most
  at::Tensor blocks;              ///< of the means of its blocks [B, N_c, H, D]; may be undefined
  int64_t num_heads = 0, head_dim = 0;
  bool rotated = false;  ///< whether the rotation is to be undone
  bool own = false;      ///< whether the first term may be written to
  at::Tensor out = {};   ///< where the gradient goes: heads side by side; undefined: anywhere
  int64_t tokens = -1;   ///< only the first so many, the others of `out` are there; -1: all
};
/// The table of the rotation as kernels read it, undefined where there is none; it must outlive the
/// launches that are given it.
at::Tensor turns_of(const NsaConfig& config, const at::Tensor& like,
                    const PackedTables* packed = nullptr);

/// Gradients of inputs of one call, in the order of `parts`: sums of the parts in fp32 in their
/// order, one rounding. `like` has batch, tokens and type. Only where tokens_by_kernel.
std::vector<at::Tensor> join_gradients(const std::vector<GradientParts>& parts,
                                       const NsaConfig& config, const at::Tensor& like,
                                       const PackedTables* packed = nullptr);

}  // namespace nsa
