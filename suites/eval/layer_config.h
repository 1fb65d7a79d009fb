#pragma once
#include <string>
#include <vector>

#include "nsa/config/config.h"
#include "suites/reference_cases/case_config.h"

namespace suites::eval {

/// The layer's configuration from a file's. `needed` are the keys of cfg that the operator depends
/// on; the others may be absent and are then chosen so that they break no rule. Throws
/// nsa::InputError "config: ..." in the words of the file: cfg.Hkv, not num_kv_heads.
nsa::NsaConfig layer_config(const CaseConfig& given, const std::vector<std::string>& needed);

}  // namespace suites::eval
