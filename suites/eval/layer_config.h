#pragma once
#include "nsa/config/config.h"
#include "suites/reference_cases/case_config.h"

namespace suites::eval {

/// The layer's configuration from a file's. Sizes may be absent, because not every operator depends
/// on all; those are chosen so that they break no rule. Throws nsa::InputError "config: ..." in the
/// words of the file: cfg.Hkv, not num_kv_heads.
nsa::NsaConfig layer_config(const CaseConfig& given);

}  // namespace suites::eval
