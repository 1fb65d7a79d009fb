#include "nsa/layer/nsa_attention.h"

#include <ATen/ATen.h>

#include "nsa/layer/batched.h"
#include "nsa/layer/call_memory.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/layer/packed.h"

namespace nsa {
namespace {

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
  const auto record = c10::make_intrusive<RunRecord>(options.sdpa_audit, current_record());
  const RunRecordScope scope(record);
  record_overrides(options);
  const NsaOptions effective = options.effective();
  NsaOutputs out;
  if (inputs.cu_seqlens.defined()) {
    out = packed_attention(inputs, config, effective);
  } else {
    check_call(inputs, config, effective);
    require_memory(inputs, config, effective, /*kept=*/false);
    out = batched_attention(inputs, config, effective);
  }
  out.record = record;
  out.ran = record->rows();
  out.sdpa_calls = record->sdpa_calls();
  return out;
}

}  // namespace nsa
