#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "nsa/layer/nsa_attention.h"
#include "nsa/nsa.h"

namespace nsa {

/// Names of the differentiable tensors of a call, in the order of the operators' arguments.
inline constexpr std::array<const char*, 10> kCallTensors = {
    "q", "k", "v", "gates", "k_cmp", "v_cmp", "k_sel", "v_sel", "k_win", "v_win"};

/// Columns of one projection [B, S, width]: q of all query heads, k of all KV heads, v of all KV
/// heads, width = Hq dk + Hkv (dk + dv).
struct QkvColumns {
  int64_t num_heads = 0, num_kv_heads = 0;
  std::optional<int64_t> v_head_dim;  ///< none: dv = dk
};

/// One call of the registered operators.
struct AttentionCall {
  std::array<at::Tensor, kCallTensors.size()> tensors;  ///< undefined where absent
  at::Tensor block_idx;                                 ///< undefined: selected by the call
  at::Tensor cu_seqlens;                                ///< undefined: batched
  std::optional<int64_t> max_seqlen;                    ///< bound of a document; or unknown
  std::optional<QkvColumns> columns;  ///< until unpack(), q is a projection, k and v undefined
  Config config;
  Backend backend = Backend::kAuto;
  bool strict = false;

  const at::Tensor& q() const { return tensors[0]; }
  bool compressed() const { return tensors[4].defined(); }
  /// Makes head counts and dims of the configuration those of q, k and v; tensors of too few axes
  /// are left to check_attention.
  void take_tensor_sizes();
  /// Makes q, k and v views of the projection that a call with `columns` was given, and takes their
  /// sizes. Throws c10::ValueError for a width that the columns do not have.
  void unpack();
};

/// "auto", "fused", "plain"; parse_backend throws c10::ValueError for another word.
std::string to_string(Backend backend);
Backend parse_backend(const std::string& text);

/// What a backend stands for on a device, without the CPU kernels: a pure function.
NsaOptions layer_options(Backend backend, bool strict, bool on_cuda);
/// What a call or a decode step runs on tensors of the device and type of `q`: with kAuto the CPU
/// kernels where they apply.
NsaOptions whole_call_options(Backend backend, bool strict, const at::Tensor& q);

struct AttentionOutput {
  at::Tensor o;          ///< as q's heads with dv
  at::Tensor block_idx;  ///< int32, ascending, -1 at the end
  /// With `keep`, what kept_results gives.
  std::vector<at::Tensor> kept = {};
};

/// Computes a call; under autograd as a composition of operators with nodes of their own. Throws
/// c10::ValueError for a bad configuration, c10::Error by name for tensors that do not fit.
AttentionOutput compute(const AttentionCall& call, bool keep = false);

/// The arguments of the layer call that a call of the operator stands for.
NsaInputs layer_inputs(const AttentionCall& call);

}  // namespace nsa
