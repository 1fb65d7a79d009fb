#include "suites/phases/target_call.h"

#include <torch/csrc/autograd/autograd.h>

#include "suites/conformance/convert.h"
#include "suites/phases/attention_case.h"

namespace suites {
namespace {

nsa::NsaOptions without_scores(nsa::SelBackend sel, nsa::BranchBackend branches) {
  nsa::NsaOptions options;
  options.sel = sel;
  options.cmp = options.win = branches;
  options.keep_scores = false;
  return options;
}

}  // namespace

nsa::NsaOptions cuda_kernels() {
  return without_scores(nsa::SelBackend::kFused, nsa::BranchBackend::kFused);
}
nsa::NsaOptions cpu_kernels() {
  return without_scores(nsa::SelBackend::kCpu, nsa::BranchBackend::kCpu);
}

TargetCall::TargetCall(const CaseConfig& config, at::Device device, uint64_t seed,
                       at::ScalarType type, const nsa::NsaOptions& options)
    : config_(config), options_(options), in_(draw_inputs(config, type, device, seed)) {
  in_.k_cmp_src = in_.k_win = in_.k_sel;
  in_.v_cmp_src = in_.v_win = in_.v_sel;
  leaves_ = {in_.q, in_.k_sel, in_.v_sel, in_.gate};
  for (at::Tensor& leaf : leaves_) leaf.requires_grad_(true);
}

nsa::NsaOutputs TargetCall::forward() const {
  return nsa::nsa_attention(to_nsa(in_), to_nsa(config_), options_);
}

nsa::NsaOutputs TargetCall::forward_in_training() const {
  nsa::NsaOptions options = options_;
  options.keep_branches = false;
  return nsa::nsa_attention(to_nsa(in_), to_nsa(config_), options);
}

std::vector<at::Tensor> TargetCall::backward(const at::Tensor& o, const at::Tensor& d_o,
                                             bool keeps_graph) const {
  return torch::autograd::grad({o}, leaves_, {d_o}, keeps_graph);
}

}  // namespace suites
