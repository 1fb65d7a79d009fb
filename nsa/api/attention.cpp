#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

#include "nsa/api/attention_stack.h"
#include "nsa/api/check_attention.h"
#include "nsa/layer/msa/msa_attention.h"
#include "nsa/nsa.h"
#include "nsa/ops/attention/fused_interval.h"
#include "nsa/ops/selected/backends.h"

namespace nsa {
namespace {

c10::OperatorHandle operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

at::Tensor call_operator(const c10::OperatorHandle& op, AttentionCall call) {
  check_presence(call);
  check_compression(call);
  torch::jit::Stack stack;
  OperatorArguments{std::move(call), {}, {}}.push(op.schema(), stack);
  op.callBoxed(stack);
  return stack[0].toTensor();
}

AttentionCall make_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& gates, const Config& config, const Options& options,
                        const BranchTensors& own) {
  AttentionCall call;
  call.tensors = {q, k, v, gates, own.k_cmp, own.v_cmp, own.k_sel, own.v_sel, own.k_win, own.v_win};
  call.block_idx = options.block_idx;
  call.config = config;
  call.backend = options.backend;
  call.strict = options.strict;
  return call;
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& gates, const Config& config, const Options& options,
                     const BranchTensors& branches) {
  static const c10::OperatorHandle op = operator_of("nsa::attention_fwd");
  return call_operator(op, make_call(q, k, v, gates, config, options, branches));
}

at::Tensor attention_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& gates, const at::Tensor& cu_seqlens,
                            const Config& config, const Options& options,
                            const BranchTensors& branches, std::optional<int64_t> max_seqlen) {
  AttentionCall call = make_call(q, k, v, gates, config, options, branches);
  TORCH_CHECK_VALUE(cu_seqlens.defined(), "nsa::attention: cu_seqlens must be defined");
  call.cu_seqlens = cu_seqlens;
  call.max_seqlen = max_seqlen;
  static const c10::OperatorHandle op = operator_of("nsa::attention_varlen_fwd");
  return call_operator(op, std::move(call));
}

at::Tensor attention_qkvpacked(const at::Tensor& qkv, const at::Tensor& gates, const Config& config,
                               const Options& options, const BranchTensors& branches) {
  AttentionCall call = make_call(qkv, {}, {}, gates, config, options, branches);
  call.columns = {config.num_heads, config.num_kv_heads, config.v_head_dim};
  static const c10::OperatorHandle op = operator_of("nsa::attention_qkvpacked_fwd");
  return call_operator(op, std::move(call));
}

at::Tensor msa_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& q_idx, const at::Tensor& k_idx, const MsaConfig& config,
                         const Options& options) {
  NsaOptions layer = whole_call_options(options.backend, options.strict, q);
  layer.block_idx = options.block_idx;
  return attend_by_index(q, k, v, q_idx, k_idx, config, layer).o;
}

std::string why_not_fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& gates, const Config& settings) {
  AttentionCall call = make_call(q, k, v, gates, settings, {}, {});
  call.take_tensor_sizes();
  check_attention(call);
  const Config& config = call.config;
  // Sizes are asked for, so slices stand for what a call would compute.
  const int64_t blocks = config.num_compressed(q.size(1));
  const std::string compressed =
      choose_interval_kernel(q, k.narrow(1, 0, blocks), v.narrow(1, 0, blocks),
                             compressed_mask(config), &config)
          .obstacle;
  if (!compressed.empty()) return "compressed branch: " + compressed;
  const std::string window = config.window == 0  // nothing is computed then
                                 ? ""
                                 : choose_interval_kernel(q, k, v, window_mask(config)).obstacle;
  if (!window.empty()) return "window: " + window;
  const at::Tensor ranges = at::empty({0, 0, 0, config.top_n, 2}, at::kInt);
  const std::string selected =
      choose_split_kernels({q, k, v, ranges, 0, config.sel_scale(), config.sel_block_size})
          .obstacle();
  return selected.empty() ? "" : "selected branch: " + selected;
}

std::string which_backend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& gates, const Config& config) {
  if (why_not_fused(q, k, v, gates, config).empty()) return "fused";
  return whole_call_options(Backend::kAuto, false, q).sel == SelBackend::kCpu ? "cpu" : "plain";
}

std::string version() { return NSA_VERSION; }

}  // namespace nsa
