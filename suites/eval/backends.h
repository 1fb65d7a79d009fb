#pragma once
#include <string>

#include "nsa/layer/nsa_attention.h"

namespace suites::eval {

/// The switches in force: environment, with --backend on top.
nsa::SwitchSet eval_switches(const std::string& backend);

/// What an operator is asked to run: the switches, then the names of --backend, several with
/// commas. Throws nsa::InputError for a name that the operator has no choice of.
nsa::NsaOptions backends_for(const std::string& op, const std::string& backend,
                             const nsa::SwitchSet& switches);

}  // namespace suites::eval
