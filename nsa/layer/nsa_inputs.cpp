#include "nsa/layer/nsa_inputs.h"

#include <string>
#include <utility>

#include "nsa/ops/common/check.h"

namespace nsa {

void check_inputs(const char* op, const NsaInputs& in, const NsaConfig& config) {
  const ArgumentCheck check(op);
  check.rank("q", in.q, 4, "[B, S, Hq, dk]");
  check.floating("q", in.q);
  const int64_t batch = in.q.size(0), tokens = in.q.size(1), kv = config.num_kv_heads;
  check.sizes("q", in.q, {batch, tokens, config.num_heads, config.qk_head_dim}, "[B, S, Hq, dk]");
  for (const auto& [name, k] : {std::pair{"k_cmp_src", &in.k_cmp_src},
                                std::pair{"k_sel", &in.k_sel}, std::pair{"k_win", &in.k_win}}) {
    check.sizes(name, *k, {batch, tokens, kv, config.qk_head_dim}, "[B, S, Hkv, dk]");
    check.same_dtype(name, *k, "q", in.q);
    check.same_device(name, *k, "q", in.q);
  }
  for (const auto& [name, v] : {std::pair{"v_cmp_src", &in.v_cmp_src},
                                std::pair{"v_sel", &in.v_sel}, std::pair{"v_win", &in.v_win}}) {
    check.sizes(name, *v, {batch, tokens, kv, config.v_head_dim}, "[B, S, Hkv, dv]");
    check.same_dtype(name, *v, "q", in.q);
    check.same_device(name, *v, "q", in.q);
  }
  check.sizes("gate_logits", in.gate_logits, {batch, tokens, -1, 3}, "[B, S, Hq or Hkv, 3]");
  check.floating("gate_logits", in.gate_logits);
  check.same_device("gate_logits", in.gate_logits, "q", in.q);
  const int64_t gate_heads = in.gate_logits.size(2);
  if (gate_heads != config.num_heads && gate_heads != kv) {
    check.fail("heads of gate_logits",
               "Hq = " + std::to_string(config.num_heads) + " or Hkv = " + std::to_string(kv),
               std::to_string(gate_heads));
  }
}

NsaInputs map_tokens(const NsaInputs& in, const std::function<at::Tensor(const at::Tensor&)>& f) {
  return {f(in.q),     f(in.k_cmp_src),   f(in.v_cmp_src), f(in.k_sel), f(in.v_sel), f(in.k_win),
          f(in.v_win), f(in.gate_logits), in.cu_seqlens,   in.phi_k,    in.phi_v};
}

NsaOptions map_tokens(const NsaOptions& options,
                      const std::function<at::Tensor(const at::Tensor&)>& f) {
  NsaOptions mapped = options;
  if (options.block_idx.defined()) mapped.block_idx = f(options.block_idx);
  return mapped;
}

NsaInputs narrow_tokens(const NsaInputs& in, int64_t begin, int64_t count) {
  return map_tokens(in, [&](const at::Tensor& x) { return x.narrow(1, begin, count); });
}

}  // namespace nsa
