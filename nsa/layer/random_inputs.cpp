#include "nsa/layer/random_inputs.h"

#include <ATen/ATen.h>

namespace nsa {
namespace {

PhiWeights random_phi(const NsaConfig& config, int64_t dim, at::TensorOptions options) {
  const int64_t l = config.block_size;
  PhiWeights weights;
  if (config.phi == Phi::kConv) weights.conv = at::randn({dim, l}, options) / l;
  if (config.phi == Phi::kMlp) {
    weights.pe = at::randn({l, dim}, options) * 0.1;
    weights.w1 = at::randn({dim, l * dim}, options) / l;
    weights.b1 = at::randn({dim}, options) * 0.1;
    weights.w2 = at::randn({dim, dim}, options) * 0.3;
    weights.b2 = at::randn({dim}, options) * 0.1;
  }
  return weights;
}

}  // namespace

NsaInputs random_inputs(const NsaConfig& config, int64_t batch, int64_t num_tokens,
                        at::TensorOptions options, bool packed) {
  TORCH_CHECK(!packed || batch == 1, "random_inputs: batch must be 1 when packed, got ", batch);
  const auto draw = [&](int64_t heads, int64_t dim) {
    const at::Tensor x = at::randn({batch, num_tokens, heads, dim}, options);
    return packed ? x.squeeze(0) : x;
  };
  const int64_t kv = config.num_kv_heads, dk = config.qk_head_dim, dv = config.v_head_dim;
  NsaInputs in;
  in.q = draw(config.num_heads, dk);
  in.k_cmp_src = draw(kv, dk);
  in.v_cmp_src = draw(kv, dv);
  in.k_sel = draw(kv, dk);
  in.v_sel = draw(kv, dv);
  in.k_win = draw(kv, dk);
  in.v_win = draw(kv, dv);
  in.gate_logits = draw(config.num_heads, 3);
  in.phi_k = random_phi(config, dk, options);
  in.phi_v = random_phi(config, dv, options);
  return in;
}

std::vector<std::pair<std::string, at::Tensor*>> differentiable(NsaInputs& in) {
  std::vector<std::pair<std::string, at::Tensor*>> named{{"q", &in.q},
                                                         {"k_cmp_src", &in.k_cmp_src},
                                                         {"v_cmp_src", &in.v_cmp_src},
                                                         {"k_sel", &in.k_sel},
                                                         {"v_sel", &in.v_sel},
                                                         {"k_win", &in.k_win},
                                                         {"v_win", &in.v_win},
                                                         {"gate_logits", &in.gate_logits}};
  for (const auto& [prefix, phi] :
       {std::pair{std::string("phi_k."), &in.phi_k}, std::pair{std::string("phi_v."), &in.phi_v}}) {
    for (const auto& [name, weight] :
         {std::pair{"conv", &phi->conv}, std::pair{"pe", &phi->pe}, std::pair{"w1", &phi->w1},
          std::pair{"b1", &phi->b1}, std::pair{"w2", &phi->w2}, std::pair{"b2", &phi->b2}}) {
      if (weight->defined()) named.emplace_back(prefix + name, weight);
    }
  }
  return named;
}

}  // namespace nsa
