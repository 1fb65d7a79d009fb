#include "nsa/api/check_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/DimVector.h>
#include <c10/core/SymIntArrayRef.h>

#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "nsa/ops/common/check.h"
#include "nsa/ops/select/positions.h"

namespace nsa {
namespace {

void check_config(const AttentionCall& call) {
  try {
    call.config.validate();
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, "nsa::attention: ", error.what());
  }
  TORCH_CHECK_VALUE(call.tensors[4].defined() == call.tensors[5].defined(),
                    "nsa::attention: k_cmp and v_cmp must be given together");
  check_compression(call);
  if (call.max_seqlen) ArgumentCheck("attention").at_least("max_seqlen", *call.max_seqlen, 0);
  TORCH_CHECK_NOT_IMPLEMENTED(!call.compressed() || !call.cu_seqlens.defined(),
                              "nsa::attention: k_cmp and v_cmp must be absent for packed "
                              "documents, got both");
}

bool is_gates(std::string_view name) { return name == "gates"; }
bool is_block(std::string_view name) { return name.ends_with("_cmp"); }

/// The sizes that a tensor must have.
c10::SymDimVector wanted_sizes(const AttentionCall& call, std::string_view name,
                               const at::Tensor& x) {
  const Config& config = call.config;
  c10::SymDimVector want(call.q().sym_sizes().slice(0, call.cu_seqlens.defined() ? 1 : 2));
  if (is_block(name)) {
    const auto tokens = call.q().sym_size(1).maybe_as_int();
    want[1] = tokens ? c10::SymInt(config.num_compressed(*tokens)) : x.sym_size(1);
  }
  const bool gate_of_query_head =
      is_gates(name) && x.dim() == call.q().dim() && x.sym_size(-2) == config.num_heads;
  want.emplace_back(name == "q" || gate_of_query_head ? config.num_heads : config.num_kv_heads);
  want.emplace_back(is_gates(name) ? 3 : name[0] == 'v' ? config.v_head_dim : config.qk_head_dim);
  return want;
}

/// Their names.
std::string legend_of(const AttentionCall& call, std::string_view name) {
  const char* const rows = call.cu_seqlens.defined() ? "[T, "
                           : is_block(name)          ? "[B, N_c, "
                                                     : "[B, S, ";
  return std::string(rows) + (name == "q"      ? "Hq, dk]"
                              : is_gates(name) ? "Hq or Hkv, 3]"
                              : name[0] == 'v' ? "Hkv, dv]"
                                               : "Hkv, dk]");
}

bool has_sizes(const at::Tensor& x, c10::SymIntArrayRef want) {
  if (x.dim() != static_cast<int64_t>(want.size())) return false;
  for (size_t i = 0; i < want.size(); ++i)
    if (x.sym_sizes()[i] != want[i]) return false;
  return true;
}

/// Keys without a query of their own would belong to a sequence that goes on.
void check_query_of_each_key(const at::Tensor& q, const at::Tensor& k, bool packed) {
  const int64_t axis = packed ? 0 : 1;
  if (k.dim() != q.dim() || !(k.sym_size(axis) > q.sym_size(axis))) return;
  TORCH_CHECK_NOT_IMPLEMENTED(false, "nsa::attention: q must have as many tokens as k, got ",
                              q.sym_size(axis), " and ", k.sym_size(axis),
                              "; fewer queries than keys are not covered");
}

/// The operators of the layer check it again, but not for Meta tensors.
void check_block_idx(const AttentionCall& call) {
  const at::Tensor& ids = call.block_idx;
  if (!ids.defined()) return;
  const ArgumentCheck argument("attention");
  const bool packed = call.cu_seqlens.defined();
  std::vector<c10::SymInt> want = call.q().sym_sizes().slice(0, packed ? 1 : 2).vec();
  want.emplace_back(call.config.num_kv_heads);
  want.push_back(ids.dim() > 0 ? ids.sym_size(-1) : c10::SymInt(0));
  if (!has_sizes(ids, want)) {
    std::stringstream wanted, have;
    wanted << (packed ? "[T, Hkv, K] = " : "[B, S, Hkv, K] = ") << c10::SymIntArrayRef(want)
           << ", ids for each query";
    have << ids.sym_sizes();
    argument.fail("block_idx", wanted.str(), have.str());
  }
  check_ids_type(argument, ids);
  argument.same_device("block_idx", ids, "q", call.q());
}

void check_tensors(const AttentionCall& call) {
  const ArgumentCheck argument("attention");
  const bool packed = call.cu_seqlens.defined();
  check_presence(call);
  const at::Tensor& q = call.q();
  argument.rank("q", q, packed ? 3 : 4, packed ? "[T, Hq, dk]" : "[B, S, Hq, dk]");
  argument.floating("q", q);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor& x = call.tensors[i];
    const char* const name = kCallTensors[i];
    if (!x.defined()) continue;
    const c10::SymDimVector want = wanted_sizes(call, name, x);
    if (!has_sizes(x, want)) {
      if (std::string_view(name) == "k") check_query_of_each_key(q, x, packed);
      std::stringstream wanted, have;
      wanted << legend_of(call, name) << " = " << c10::SymIntArrayRef(want);
      have << x.sym_sizes();
      argument.fail(name, wanted.str(), have.str());
    }
    if (std::string_view(name) == "gates")
      argument.floating(name, x);
    else
      argument.same_dtype(name, x, "q", q);
    argument.same_device(name, x, "q", q);
  }
}

}  // namespace

void check_compression(const AttentionCall& call) {
  TORCH_CHECK_NOT_IMPLEMENTED(call.compressed() || call.config.phi == Phi::kMean,
                              "nsa::attention: phi must be mean, got ", to_string(call.config.phi),
                              "; give its results as k_cmp and v_cmp (operator nsa::compress)");
}

void check_presence(const AttentionCall& call) {
  const ArgumentCheck argument("attention");
  if (call.columns) argument.defined("qkv", call.tensors[0]);
  for (size_t i = call.columns ? 3 : 0; i < 4; ++i)
    argument.defined(kCallTensors[i], call.tensors[i]);
}

void check_attention(const AttentionCall& call) {
  check_config(call);
  check_tensors(call);
  check_block_idx(call);
}

}  // namespace nsa
