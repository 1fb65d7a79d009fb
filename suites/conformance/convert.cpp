#include "suites/conformance/convert.h"

#include <ATen/ATen.h>

namespace suites {
namespace {

namespace ref = nsa::reference;

template <class T>
ref::Tensor<T> copy_out(const at::Tensor& x, at::ScalarType type) {
  if (!x.defined()) return {};
  const at::Tensor host = x.detach().to(at::kCPU, type).contiguous();
  const T* begin = host.const_data_ptr<T>();
  return {x.sizes().vec(), std::vector<T>(begin, begin + host.numel())};
}

template <class T>
at::Tensor copy_in(const ref::Tensor<T>& x, at::ScalarType type) {
  if (!x.defined()) return {};
  at::Tensor out = at::empty(x.shape(), at::TensorOptions().dtype(type));
  std::copy(x.values().begin(), x.values().end(), out.mutable_data_ptr<T>());
  return out;
}

ref::PhiWeights phi_to_reference(const DensePhi& phi) {
  return {to_reference(phi.conv), to_reference(phi.pe), to_reference(phi.w1),
          to_reference(phi.b1),   to_reference(phi.w2), to_reference(phi.b2)};
}

nsa::PhiWeights phi_to_nsa(const DensePhi& phi) {
  return {phi.conv, phi.pe, phi.w1, phi.b1, phi.w2, phi.b2};
}

ref::Phi reference_phi(Phi phi) {
  return phi == Phi::kMean ? ref::Phi::kMean : phi == Phi::kConv ? ref::Phi::kConv : ref::Phi::kMlp;
}
ref::Gate reference_gate(GateKind gate) {
  return gate == GateKind::kNone      ? ref::Gate::kNone
         : gate == GateKind::kSigmoid ? ref::Gate::kSigmoid
                                      : ref::Gate::kSoftmax;
}
ref::Rope reference_rope(RopeKind rope) {
  return rope == RopeKind::kNone         ? ref::Rope::kNone
         : rope == RopeKind::kBlockStart ? ref::Rope::kBlockStart
                                         : ref::Rope::kBeforePool;
}

}  // namespace

ref::Config to_reference(const CaseConfig& c) {
  ref::Config out;
  out.num_heads = c.num_heads;
  out.num_kv_heads = c.num_kv_heads;
  out.qk_head_dim = c.qk_head_dim;
  out.v_head_dim = c.v_head_dim;
  out.block_size = c.block_size;
  out.block_stride = c.block_stride;
  out.sel_block_size = c.sel_block_size;
  out.top_n = c.top_n;
  out.n_initial = c.n_initial;
  out.n_local = c.n_local;
  out.window = c.window;
  out.phi = reference_phi(c.phi);
  out.gate = reference_gate(c.gate);
  out.rope = reference_rope(c.rope);
  out.rope_base = c.rope_base;
  return out;
}

nsa::NsaConfig to_nsa(const CaseConfig& c) {
  nsa::NsaConfig out;
  out.num_heads = c.num_heads;
  out.num_kv_heads = c.num_kv_heads;
  out.qk_head_dim = c.qk_head_dim;
  out.v_head_dim = c.v_head_dim;
  out.block_size = c.block_size;
  out.block_stride = c.block_stride;
  out.sel_block_size = c.sel_block_size;
  out.top_n = c.top_n;
  out.num_initial = c.n_initial;
  out.num_local = c.n_local;
  out.window = c.window;
  out.phi = c.phi == Phi::kMean   ? nsa::Phi::kMean
            : c.phi == Phi::kConv ? nsa::Phi::kConv
                                  : nsa::Phi::kMlp;
  out.gate = c.gate == GateKind::kNone      ? nsa::GateActivation::kNone
             : c.gate == GateKind::kSigmoid ? nsa::GateActivation::kSigmoid
                                            : nsa::GateActivation::kSoftmax;
  out.rope = c.rope == RopeKind::kNone         ? nsa::RopeMode::kNone
             : c.rope == RopeKind::kBlockStart ? nsa::RopeMode::kBlockStart
                                               : nsa::RopeMode::kBeforePool;
  out.rope_base = c.rope_base;
  return out;
}

ref::Tensor<double> to_reference(const at::Tensor& x) { return copy_out<double>(x, at::kDouble); }
ref::Tensor<int32_t> to_reference_ids(const at::Tensor& x) {
  return copy_out<int32_t>(x, at::kInt);
}
at::Tensor from_reference(const ref::Tensor<double>& x) { return copy_in(x, at::kDouble); }
at::Tensor from_reference(const ref::Tensor<int32_t>& x) { return copy_in(x, at::kInt); }

ref::Inputs to_reference(const DenseInputs& in) {
  ref::Inputs out;
  out.q = to_reference(in.q);
  out.k_cmp_src = to_reference(in.k_cmp_src);
  out.v_cmp_src = to_reference(in.v_cmp_src);
  out.k_sel = to_reference(in.k_sel);
  out.v_sel = to_reference(in.v_sel);
  out.k_win = to_reference(in.k_win);
  out.v_win = to_reference(in.v_win);
  out.gates = to_reference(in.gate);
  out.phi_k = phi_to_reference(in.phi_k);
  out.phi_v = phi_to_reference(in.phi_v);
  return out;
}

std::vector<at::Tensor> in_named_order(const ref::Inputs& in) {
  std::vector<at::Tensor> all;
  for (const auto* x :
       {&in.q, &in.k_cmp_src, &in.v_cmp_src, &in.k_sel, &in.v_sel, &in.k_win, &in.v_win, &in.gates})
    all.push_back(from_reference(*x));
  for (const auto* phi : {&in.phi_k, &in.phi_v})
    for (const auto* x : {&phi->conv, &phi->pe, &phi->w1, &phi->b1, &phi->w2, &phi->b2})
      if (x->defined()) all.push_back(from_reference(*x));
  return all;
}

nsa::NsaInputs to_nsa(const DenseInputs& in) {
  nsa::NsaInputs out;
  out.q = in.q;
  out.k_cmp_src = in.k_cmp_src;
  out.v_cmp_src = in.v_cmp_src;
  out.k_sel = in.k_sel;
  out.v_sel = in.v_sel;
  out.k_win = in.k_win;
  out.v_win = in.v_win;
  out.gate_logits = in.gate;
  out.phi_k = phi_to_nsa(in.phi_k);
  out.phi_v = phi_to_nsa(in.phi_v);
  return out;
}

}  // namespace suites
