#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nsa/config/config.h"

/// The public interface of libnsa: Native Sparse Attention (arXiv 2502.11089) on LibTorch tensors.
/// docs/semantics.md has the definition, symbols and shapes included.
///
///   at::Tensor o = nsa::attention(q, k, v, gate_logits);
///   o.sum().backward();
///
/// A program needs find_package(nsa) and target nsa::nsa (examples/cpp_consumer).
namespace nsa {

/// Block sizes, window, selection, gates, rotation and scales of the branches. Head counts and dims
/// of a call are those of its tensors; these fields are read by attention_qkvpacked only.
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
/// The CUDA kernels have head dims dk/dv of 64/64, 128/128 and 192/128. Branches of other dims
/// from 24 up to 192/128 are computed in the next larger ones, with zeros behind the elements of a
/// head; the scale, rotation and compression are those of dk.
/// Throws c10::Error (c10::ValueError, c10::NotImplementedError) that names argument and value.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& gates, const Config& config = {},
                     const Options& options = {}, const BranchTensors& branches = {});

/// The same for packed documents: tensors [T, heads, dim]; cu_seqlens int32 [documents + 1] starts
/// at 0, never falls and ends at T. Positions, blocks and the window restart in each document.
/// max_seqlen: the most tokens of a document. Where the CUDA kernels cover the call, every launch
/// is of all documents, and with max_seqlen and cu_seqlens on the GPU the host reads nothing of
/// them: instead of an error, tokens from max_seqlen on and outside of all documents are NaN. In
/// all other cases the offsets are read, and bad ones and longer documents are refused
/// (c10::ValueError).
at::Tensor attention_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& gates, const at::Tensor& cu_seqlens,
                            const Config& config = {}, const Options& options = {},
                            const BranchTensors& branches = {},
                            std::optional<int64_t> max_seqlen = {});

/// attention of one projection qkv [B, S, Hq dk + Hkv (dk + dv)], as one linear layer gives it: in
/// a token's row q of all query heads, then k of all KV heads, then v of all KV heads. The calls
/// read views of it, and its gradient is one tensor. config.num_heads, num_kv_heads and v_head_dim,
/// which the other calls do not read, name the columns; gates are separate.
at::Tensor attention_qkvpacked(const at::Tensor& qkv, const at::Tensor& gates, const Config& config,
                               const Options& options = {}, const BranchTensors& branches = {});

/// MiniMax Sparse Attention (arXiv 2606.13392): causal attention of each query over the current
/// block and the top_n - 1 blocks before it whose index scores are largest
/// (docs/semantics.md, Selection by an index).
///   q [B, S, Hq, dk], k [B, S, Hkv, dk], v [B, S, Hkv, dv]; q_idx [B, S, Hkv, di], one head of the
///   index for each KV head, and k_idx [B, S, di], one for all: rotated where they shall be, one
///   type of fp64, fp32, bf16 or fp16. -> [B, S, Hq, dv], type of q.
/// Differentiable in q, k and v; q_idx and k_idx must be detached. options.block_idx replaces the
/// choice. With Backend::kAuto the kernels of NSA's selected branch compute it where they cover
/// block_size, top_n and dims; scores are products of the library, half a GiB of them at a time.
/// No dispatcher operator, so not for torch.compile. Throws c10::Error by name.
at::Tensor msa_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& q_idx, const at::Tensor& k_idx,
                         const MsaConfig& config = {}, const Options& options = {});

class LayerCache;
class NsaAttentionImpl;

/// Keys and values of a batch of sequences, each with its own length, for decoding token by token.
/// All memory is taken by the constructor. Under autograd it becomes part of the graph: wrap
/// inference in at::NoGradGuard or c10::InferenceMode.
class DecodeCache {
 public:
  /// Room for `capacity` tokens in each sequence. Head counts and dims are those of `config`, whose
  /// compression must be the mean (Attention::make_cache has the others); `options`: float type and
  /// device. Throws c10::ValueError.
  DecodeCache(const Config& config, int64_t num_sequences, int64_t capacity,
              at::TensorOptions options);
  DecodeCache(DecodeCache&& other) noexcept;
  DecodeCache& operator=(DecodeCache&& other) noexcept;
  ~DecodeCache();

  int64_t num_sequences() const;
  int64_t capacity() const;
  int64_t num_tokens(int64_t sequence) const;  ///< tokens that a sequence holds
  int64_t bytes() const;                       ///< of memory that the caches take

  /// Empties a sequence.
  void reset(int64_t sequence);
  /// Takes the pages that every sequence needs to reach `num_tokens` tokens. Before a decode step
  /// is captured in a CUDA graph; a step can be captured where it is one launch of a kernel.
  void reserve(int64_t num_tokens);
  /// Accounts for one replay of a captured step of all sequences, of `new_tokens` tokens each; call
  /// it before the replay.
  void before_replay(int64_t new_tokens = 1);
  /// Takes the last tokens of a sequence back, so that it has `num_tokens`: those of a speculative
  /// step that were not accepted. At least seven behind a step; throws c10::ValueError where the
  /// rings of the latest tokens reach back less far.
  void truncate(int64_t sequence, int64_t num_tokens);

 private:
  friend class AttentionImpl;
  friend struct CacheAccess;
  explicit DecodeCache(std::unique_ptr<LayerCache> caches);
  std::unique_ptr<LayerCache> caches_;
};

/// Appends tokens to every sequence of a cache and attends with them: one decode step where S = 1
/// or no sequence is empty (a speculative one: up to 8 tokens, and not more than block_stride, are
/// one launch where a step is), else a prefill. Tensors and result as for attention, B =
/// cache.num_sequences(), type and device of the cache; branches.k_cmp and v_cmp must be absent.
/// Row b appends its first lengths[b] tokens (all S, unless given); results behind them are 0.
/// Throws, before anything changes, where a sequence would exceed the capacity.
at::Tensor decode(DecodeCache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& gates, const Options& options = {},
                  const BranchTensors& branches = {}, const std::vector<int64_t>& lengths = {});

/// The layer around the attention: projections of q, of keys and values for each branch, gates by
/// an MLP on q, and the projection of the output; all compressions of Config::phi.
/// Parameters (w_q, w_k_cmp, ..., w_o, gate_w1, ..., phi_k_w1, ...) keep their type; products are
/// computed in the type of x.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(int64_t dim, const Config& config = {}, const Options& options = {});

  /// x [B, S, dim], or packed [T, dim] with cu_seqlens int32 [documents + 1] -> same shape.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& cu_seqlens = {});
  /// x [B, S, dim]: the next tokens of every sequence, as decode.
  at::Tensor forward(const at::Tensor& x, DecodeCache& cache,
                     const std::vector<int64_t>& lengths = {});
  /// A cache for this module; `options` as for DecodeCache.
  DecodeCache make_cache(int64_t num_sequences, int64_t capacity, at::TensorOptions options) const;

  Options options;  ///< of every forward; block_idx is that of the next call only as long as set

 private:
  std::shared_ptr<NsaAttentionImpl> layer_;
};
TORCH_MODULE(Attention);

/// Why the CUDA kernels do not compute attention(q, k, v, gates, config); empty where they do. A
/// question of sizes, types and devices: nothing is computed.
std::string why_not_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& gates, const Config& config = {});

/// What computes attention(q, k, v, gates, config) with backend kAuto: "fused", the CUDA kernels;
/// "cpu", the CPU kernels; "plain", compositions of LibTorch operators. Nothing is computed.
std::string which_backend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& gates, const Config& config = {});

/// "0.1.0"
std::string version();

}  // namespace nsa
