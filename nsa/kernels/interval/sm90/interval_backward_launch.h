#pragma once
#include "nsa/kernels/interval/interval_backward.h"

/// The launches behind interval_attention_backward, in the order they are enqueued.
namespace nsa::kernels::sm90 {

constexpr int kKeysOfTile = 128;  // keys whose gradients a CTA sums
/// Streaming multiprocessors a launch should keep busy. A constant, so that results do not depend
/// on the card.
constexpr int kBusySms = 132;

/// How the rows of key tiles are cut into units, one a CTA, and where the workspace holds what.
struct BackwardPlan {
  int chunk_tokens = 0;       // a unit sums over so many tokens
  int num_chunks = 1;         // of the key tile with the most; above 1: partial sums are written
  float* lse = nullptr;       // [B, Hkv, S, G] log2; +inf for a row without keys
  float* delta = nullptr;     // [B, Hkv, S, G] sum over columns of d_out * out, less d_lse
  float* partials = nullptr;  // [chunks, B, Hkv, N, dk + dv], d_k scaled
  int* bad = nullptr;         // not 0: a gradient, but of partial sums, is not finite
};

/// Sets chunk_tokens and num_chunks so that no unit takes much longer than an SM's share of all
/// units.
void choose_chunks(const IntervalAttention&, BackwardPlan&);

/// Rows a tile of the d_k, d_v kernel has.
constexpr int rows_of_key_pass(int qk_head_dim) { return qk_head_dim == 64 ? 128 : 64; }

/// d_k, d_v (or partial sums) and d_q; one function per head dims and type, each in its .cu file.
using BackwardFunction = cudaError_t(const IntervalBackward&, const BackwardPlan&, cudaStream_t);
using LaunchBackward = BackwardFunction*;
BackwardFunction backward_64_64_bf16, backward_64_64_fp16, backward_128_128_bf16,
    backward_128_128_fp16, backward_192_128_bf16, backward_192_128_fp16;

}  // namespace nsa::kernels::sm90
