#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "nsa/config/config.h"

/// The public interface of libnsa: Native Sparse Attention (arXiv 2502.11089) on LibTorch tensors.
/// docs/semantics.md has the definition, symbols and shapes included.
///
///   at::Tensor o = nsa::attention(q, k, v, gate_logits);
///   o.sum().backward();
///
/// A program needs find_package(nsa) and target nsa::nsa (examples/cpp_consumer).
namespace nsa {

/// Block sizes, window, selection, gates and rotation. Head counts and dims of a call are those of
/// its tensors; these fields are not read.
using Config = NsaConfig;

/// Which code computes a call.
enum class Backend {
  kAuto,   ///< the CUDA kernels on a GPU where they cover the call; the CPU kernels on a CPU, of
           ///< fp32, bf16 and fp16; else plain operators
  kFused,  ///< the CUDA kernels; where they do not cover the call, plain operators or an error
  kPlain,  ///< compositions of LibTorch operators, on every device and type
};

struct Options {
  Backend backend = Backend::kAuto;
  bool strict = false;  ///< with kFused: a call that the kernels do not cover is an error
  /// Blocks to attend instead of the selection: [B, S, Hkv, K], packed [T, Hkv, K]; int32 or int64,
  /// a set in any order; ids outside 0..floor(t/l') are unused places.
  at::Tensor block_idx = {};
};

/// Keys and values of single branches; where undefined, those of the call serve. Shapes as k and v;
/// all are un-rotated, and each tensor gets its own gradient.
struct BranchTensors {
  /// Results of compression, [B, N_c, Hkv, dk] (rotated as config.rope asks) and [B, N_c, Hkv, dv],
  /// for other compressions than config.phi. Batched calls only.
  at::Tensor k_cmp = {}, v_cmp = {};
  at::Tensor k_sel = {}, v_sel = {};
  at::Tensor k_win = {}, v_win = {};
};

/// Causal attention over compressed, selected and window keys, weighted by gates.
///   q [B, S, Hq, dk], k [B, S, Hkv, dk], v [B, S, Hkv, dv]: not rotated, one type of fp64, fp32,
///   bf16 or fp16, any strides. gates [B, S, Hq or Hkv, 3]: logits in the order compressed,
///   selected, window, or gates where config.gate is kNone. -> [B, S, Hq, dv], type of q.
/// Compression is config.phi = kMean; others are given as branches.k_cmp and v_cmp. Differentiable
/// once in every floating argument; the selection is not differentiated. A dispatcher operator
/// (nsa::attention_fwd), so torch.compile and autocast see one call.
/// Throws c10::Error (c10::ValueError, c10::NotImplementedError) that names argument and value.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& gates, const Config& config = {},
                     const Options& options = {}, const BranchTensors& branches = {});

/// The same for packed documents: tensors [T, heads, dim]; cu_seqlens int32 [documents + 1] starts
/// at 0, never falls and ends at T. Positions, blocks and the window restart in each document.
at::Tensor attention_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& gates, const at::Tensor& cu_seqlens,
                            const Config& config = {}, const Options& options = {},
                            const BranchTensors& branches = {});

/// Why the CUDA kernels do not compute attention(q, k, v, gates, config); empty where they do. A
/// question of sizes, types and devices: nothing is computed.
std::string why_not_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& gates, const Config& config = {});

/// "0.1.0"
std::string version();

}  // namespace nsa
