#pragma once
#include <map>
#include <string>
#include <vector>

#include "nsa/switches/switches.h"
#include "suites/eval/evaluation.h"

namespace suites::eval {

/// Metadata of the output: config, eval, ran, switches, each JSON.
std::map<std::string, std::string> record_of(const Evaluation& run, const std::string& op,
                                             const nsa::SwitchSet& switches);

/// Backends that were asked for and did not run, and ids that were ignored.
std::vector<std::string> warnings_of(const Evaluation& run);

}  // namespace suites::eval
