#include "nsa/api/attention_call.h"

#include <ATen/ATen.h>

#include "nsa/api/check_attention.h"
#include "nsa/api/kept_results.h"
#include "nsa/layer/batched.h"
#include "nsa/layer/call_memory.h"
#include "nsa/layer/fused/packed_call.h"
#include "nsa/ops/attention/cpu_attention.h"

namespace nsa {
namespace {

const at::Tensor& first_defined(const at::Tensor& own, const at::Tensor& shared) {
  return own.defined() ? own : shared;
}

}  // namespace

NsaInputs layer_inputs(const AttentionCall& call) {
  const auto& [q, k, v, gates, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win] = call.tensors;
  NsaInputs in;
  in.q = q;
  in.k_cmp_src = first_defined(k_cmp, k);
  in.v_cmp_src = first_defined(v_cmp, v);
  in.k_sel = first_defined(k_sel, k);
  in.v_sel = first_defined(v_sel, v);
  in.k_win = first_defined(k_win, k);
  in.v_win = first_defined(v_win, v);
  in.gate_logits = gates;
  in.cu_seqlens = call.cu_seqlens;
  in.max_seqlen = call.max_seqlen;
  return in;
}

void AttentionCall::take_tensor_sizes() {
  for (const at::Tensor* x : {&tensors[0], &tensors[1], &tensors[2]})
    if (!x->defined() || x->dim() < 2) return;
  const auto size = [](const at::Tensor& x, int64_t axis) {
    return x.sym_size(axis).guard_int(__FILE__, __LINE__);
  };
  config.num_heads = size(tensors[0], -2);
  config.qk_head_dim = size(tensors[0], -1);
  config.num_kv_heads = size(tensors[1], -2);
  config.v_head_dim = size(tensors[2], -1);
}

std::string to_string(Backend backend) {
  return backend == Backend::kAuto ? "auto" : backend == Backend::kFused ? "fused" : "plain";
}

Backend parse_backend(const std::string& text) {
  for (const Backend backend : {Backend::kAuto, Backend::kFused, Backend::kPlain})
    if (text == to_string(backend)) return backend;
  TORCH_CHECK_VALUE(false, "nsa::attention: backend must be auto, fused or plain, got '", text,
                    "'");
}

NsaOptions layer_options(Backend backend, bool strict, bool on_cuda) {
  NsaOptions options;
  options.keep_scores = false;
  if (backend == Backend::kPlain || (backend == Backend::kAuto && !on_cuda)) return options;
  options.sel = SelBackend::kFused;
  options.cmp = BranchBackend::kFused;
  options.win = BranchBackend::kFused;
  options.strict_backend = strict && backend == Backend::kFused;
  return options;
}

NsaOptions whole_call_options(Backend backend, bool strict, const at::Tensor& q) {
  NsaOptions options = layer_options(backend, strict, q.is_cuda());
  if (backend == Backend::kAuto && cpu_kernel_obstacle(q).empty()) {
    options.sel = SelBackend::kCpu;
    options.cmp = options.win = BranchBackend::kCpu;
  }
  return options;
}

namespace {

/// All documents at once where the kernels cover the call, else batches of similar ones.
AttentionOutput compute_documents(const AttentionCall& call, const NsaInputs& in,
                                  const NsaOptions& options, bool keep) {
  if (const auto kernels = packed_kernels(call, /*checks_offsets=*/true)) {
    const Steps steps =
        packed_steps(in, call.config, call.block_idx, *kernels, keep && keeps_two(call));
    AttentionOutput result{steps.out.o.squeeze(0), steps.out.block_idx.squeeze(0)};
    if (keep) result.kept = kept_results(call, steps);
    return result;
  }
  const NsaOutputs out = nsa_attention(in, call.config, options);
  return {out.o, out.block_idx, keep ? kept_blanks(call) : std::vector<at::Tensor>{}};
}

}  // namespace

AttentionOutput compute(const AttentionCall& call, bool keep) {
  check_attention(call);
  NsaOptions options = whole_call_options(call.backend, call.strict, call.q());
  options.block_idx = call.block_idx;
  const NsaInputs in = layer_inputs(call);
  if (call.cu_seqlens.defined()) return compute_documents(call, in, options, keep);
  if (!keep && !call.compressed()) {
    const NsaOutputs out = nsa_attention(in, call.config, options);
    return {out.o, out.block_idx};
  }
  check_block_idx(in, call.config, options);
  require_memory(in, call.config, options, keep);
  const Steps steps =
      compose_attention(in, call.config, options, call.compressed(), keep && keeps_two(call));
  AttentionOutput result{steps.out.o, steps.out.block_idx};
  if (keep) result.kept = kept_results(call, steps);
  return result;
}

}  // namespace nsa
