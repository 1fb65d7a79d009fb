#pragma once
#include <string>

#include "nsa/layer/nsa_attention.h"

namespace suites::eval {

/// The switches of the environment. Throws std::invalid_argument for one that --op, in this mode,
/// ignores.
nsa::SwitchSet switches_for(const std::string& op, const std::string& mode);

/// What an operator is asked to run: the switches, then the names of --backend, several with
/// commas. Throws nsa::InputError for a name that the operator does not know.
nsa::NsaOptions backends_for(const std::string& op, const std::string& backend,
                             const nsa::SwitchSet& switches);

}  // namespace suites::eval
