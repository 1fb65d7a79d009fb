#pragma once
#include <vector>

#include "nsa/reference/inputs.h"

namespace nsa::reference {

/// Packed documents: Inputs with [T,H,D] tensors (no B axis), cu_seqlens [docs+1].
/// Outputs are packed too: [T,...], p_cmp and scores padded with 0 to the longest document,
/// k_cmp/v_cmp [cu_cmp.back(),Hkv,D].
struct VarlenOutputs : Outputs {
  std::vector<int32_t> cu_cmp;  ///< [docs+1], cumulative sum of N_c(length)
};

/// `forward` of each document alone: positions, blocks, selection and window restart at 0.
/// Documents of length 0 are legal. Throws for cu_seqlens that does not start at 0, falls, or does
/// not end at T, naming the place and the value.
/// `given` holds packed stage values: [T,...], and [cu_cmp.back(),Hkv,D] for k_cmp and v_cmp.
VarlenOutputs forward_varlen(const Config& config, const Inputs& packed,
                             const std::vector<int32_t>& cu_seqlens, const Given& given = {});

/// `backward` of each document alone, d_o [T,Hq,dv]; weight gradients are summed over documents.
Inputs backward_varlen(const Config& config, const Inputs& packed,
                       const std::vector<int32_t>& cu_seqlens, const Tensor<double>& d_o,
                       const Given& given = {});

/// The packed tokens of one document as Inputs with B = 1.
Inputs slice_document(const Inputs& packed, int64_t begin, int64_t end);

}  // namespace nsa::reference
