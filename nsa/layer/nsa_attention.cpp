#include "nsa/layer/nsa_attention.h"

#include <ATen/ATen.h>

#include "nsa/core/check.h"
#include "nsa/layer/batched.h"
#include "nsa/layer/packed.h"

namespace nsa {
namespace {

void check_inputs(const NsaInputs& in, const NsaConfig& config) {
  const ArgumentCheck check("nsa_attention");
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
  const int64_t gate_heads = in.gate_logits.size(2);
  if (gate_heads != config.num_heads && gate_heads != kv) {
    check.fail("heads of gate_logits",
               "Hq = " + std::to_string(config.num_heads) + " or Hkv = " + std::to_string(kv),
               std::to_string(gate_heads));
  }
}

/// What was asked for and is overridden by a switch that wins over it.
void record_overrides(const NsaOptions& options) {
  const auto note = [](const char* stage, const std::string& requested, const std::string& backend,
                       const char* by) {
    if (requested == backend) return;
    record_backend(stage, requested, backend, "", std::string("overridden by ") + by,
                   /*strict=*/false);
  };
  const char* const parity = "NSA_FORCE_PARITY";
  const NsaOptions effective = options.effective();
  if (options.sel != SelBackend::kGather) {
    note("sel_attn.request", to_string(options.sel), to_string(effective.sel),
         options.force_sel_mask ? "NSA_FORCE_SEL_MASK" : parity);
  }
  note("cmp_attn.request", to_string(options.cmp), to_string(effective.cmp), parity);
  note("win_attn.request", to_string(options.win), to_string(effective.win), parity);
}

}  // namespace

NsaOutputs nsa_attention(const NsaInputs& inputs, const NsaConfig& config,
                         const NsaOptions& options) {
  config.validate();
  const auto record = c10::make_intrusive<RunRecord>(options.sdpa_audit);
  const RunRecordScope scope(record);
  record_overrides(options);
  const NsaOptions effective = options.effective();
  NsaOutputs out;
  if (inputs.cu_seqlens.defined()) {
    out = packed_attention(inputs, config, effective);
  } else {
    check_inputs(inputs, config);
    out = batched_attention(inputs, config, effective);
  }
  out.record = record;
  out.ran = record->rows();
  out.sdpa_calls = record->sdpa_calls();
  return out;
}

}  // namespace nsa
