#pragma once
#include "nsa/reference/inputs.h"

namespace nsa::reference {

/// Gradients of sum(d_o * forward(...).o) with respect to every input, in the shape of the input;
/// d_o [B,S,Hq,dv]. Scores, block_idx and ranges are detached: keys and phi learn through o_cmp.
/// With `given` stage values the gradients are taken at those values, as in `forward`; a given
/// k_cmp or v_cmp still passes its gradient on to the source and the weights.
Inputs backward(const Config& config, const Inputs& inputs, const Tensor<double>& d_o,
                const Given& given = {});

/// d_x of `rope` for d_rotated, x [B,S,H,dk]: rotation back.
Tensor<double> rope_backward(const Tensor<double>& d_rotated, double base, RopePairs pairs);

/// Gradients of compress_keys / compress_values for d_cmp [B,N_c,Hkv,D].
struct CompressGradients {
  Tensor<double> source;
  PhiWeights weights;  ///< defined where phi has the weight
};
CompressGradients compress_keys_backward(const Config& config, const Tensor<double>& k_cmp_src,
                                         const PhiWeights& phi_k, const Tensor<double>& d_k_cmp);
CompressGradients compress_values_backward(const Config& config, const Tensor<double>& v_cmp_src,
                                           const PhiWeights& phi_v, const Tensor<double>& d_v_cmp);

}  // namespace nsa::reference
