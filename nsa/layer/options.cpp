#include "nsa/layer/nsa_attention.h"

namespace nsa {
namespace {

SelBackend sel_backend(const SwitchSet& switches) {
  if (switches.get_bool("NSA_USE_SEL_PACK")) return SelBackend::kPacked;
  if (switches.get_bool("NSA_USE_SEL_VARLEN")) return SelBackend::kVarlen;
  if (switches.get_bool("NSA_USE_SEL_MASK")) return SelBackend::kMasked;
  return SelBackend::kGather;
}

BranchBackend branch_backend(const SwitchSet& switches, const char* own) {
  const bool flash = switches.get_bool("NSA_USE_FA2") || switches.get_bool(own);
  return flash ? BranchBackend::kFlash : BranchBackend::kPlain;
}

}  // namespace

NsaOptions NsaOptions::from(const SwitchSet& switches) {
  NsaOptions options;
  options.ranges = switches.get_bool("NSA_SEL_RANGES_V2") ? RangesVersion::kV2 : RangesVersion::kV1;
  options.sel = sel_backend(switches);
  options.cmp = branch_backend(switches, "NSA_USE_FA2_CMP");
  options.win = branch_backend(switches, "NSA_USE_FA2_WIN");
  options.safe_pack = switches.get_bool("NSA_TRAIN_SAFE_PACK");
  options.force_sel_mask = switches.get_bool("NSA_FORCE_SEL_MASK");
  options.force_parity = switches.get_bool("NSA_FORCE_PARITY");
  options.strict_asserts = switches.get_bool("NSA_STRICT_ASSERTS");
  options.sdpa_audit = switches.get_bool("NSA_SDPA_AUDIT");
  options.prefill_batched = switches.get_bool("NSA_PREFILL_BATCHED");
  options.nvtx = switches.get_bool("NSA_NVTX");
  return options;
}

NsaOptions NsaOptions::effective() const {
  NsaOptions result = *this;
  if (force_parity) {
    result.sel = SelBackend::kGather;
    result.cmp = result.win = BranchBackend::kPlain;
  }
  if (force_sel_mask) result.sel = SelBackend::kMasked;
  return result;
}

}  // namespace nsa
