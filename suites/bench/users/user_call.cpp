#include "suites/bench/users/user_call.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "nsa/api/attention_call.h"
#include "nsa/nsa.h"
#include "suites/faults/documents.h"

namespace suites {
namespace {

nsa::NsaOutputs layer_by_auto(const nsa::NsaInputs& in, const nsa::NsaConfig& config,
                              const at::Tensor& block_idx = {}) {
  const at::NoGradGuard no_grad;
  nsa::NsaOptions options = nsa::whole_call_options(nsa::Backend::kAuto, /*strict=*/false, in.q);
  options.block_idx = block_idx;
  return nsa::nsa_attention(in, config, options);
}

at::Tensor operator_output(const nsa::NsaInputs& in, const nsa::NsaConfig& config,
                           const at::Tensor& block_idx = {}) {
  const nsa::Options options{.block_idx = block_idx};
  const nsa::BranchTensors own{
      .k_sel = in.k_sel, .v_sel = in.v_sel, .k_win = in.k_win, .v_win = in.v_win};
  if (in.cu_seqlens.defined())
    return nsa::attention_varlen(in.q, in.k_cmp_src, in.v_cmp_src, in.gate_logits, in.cu_seqlens,
                                 config, options, own);
  return nsa::attention(in.q, in.k_cmp_src, in.v_cmp_src, in.gate_logits, config, options, own);
}

/// Results of the layer, and the operator's own output with its graph.
nsa::NsaOutputs operator_as_layer(const nsa::NsaInputs& in, const nsa::NsaConfig& config,
                                  const nsa::NsaOptions& options) {
  nsa::NsaOutputs out = layer_by_auto(in, config, options.block_idx);
  out.o = operator_output(in, config, options.block_idx);
  return out;
}

/// as_documents takes scores along, which the kernels do not leave.
nsa::NsaOutputs with_blank_scores(const nsa::NsaInputs& in, const nsa::NsaConfig& config,
                                  const nsa::NsaOptions& options) {
  nsa::NsaOutputs out = operator_as_layer(in, config, options);
  if (!out.scores.defined())
    out.scores = at::zeros({in.q.size(0), in.k_sel.size(1), config.num_sel_blocks(in.q.size(0))},
                           in.q.options().dtype(at::kFloat));
  return out;
}

}  // namespace

UserCall::UserCall(const nsa::NsaConfig& config, const std::vector<at::Tensor>& tensors,
                   at::Tensor cu_seqlens, std::optional<int64_t> max_seqlen)
    : config_(config), cu_seqlens_(std::move(cu_seqlens)), max_seqlen_(max_seqlen) {
  for (const at::Tensor& x : tensors) leaves_.push_back(x.detach().clone().requires_grad_(true));
}

at::Tensor UserCall::forward() const {
  const auto& x = leaves_;
  if (cu_seqlens_.defined())
    return nsa::attention_varlen(x[0], x[1], x[2], x[3], cu_seqlens_, config_, {}, {}, max_seqlen_);
  return nsa::attention(x[0], x[1], x[2], x[3], config_);
}

std::vector<at::Tensor> UserCall::backward(const at::Tensor& o, const at::Tensor& d_o) const {
  return torch::autograd::grad({o}, leaves_, {d_o}, /*retain_graph=*/true);
}

nsa::NsaOutputs UserCall::layer() const {
  const auto& x = leaves_;
  nsa::NsaInputs in{x[0], x[1], x[2], x[1], x[2], x[1], x[2], x[3], {}, {}, {}};
  in.cu_seqlens = cu_seqlens_;
  return layer_by_auto(in, config_);
}

Candidate operator_candidate(bool packed) {
  Candidate c = plain_candidate();
  c.whole = true;
  c.runs.clear();
  c.layer = operator_as_layer;
  if (packed)
    c.layer = [](const nsa::NsaInputs& in, const nsa::NsaConfig& config,
                 const nsa::NsaOptions& options) {
      return as_documents(with_blank_scores, in, config, options);
    };
  return c;
}

}  // namespace suites
