#pragma once
#include <map>
#include <string>

#include "nsa/switches/switches.h"
#include "suites/eval/evaluation.h"

namespace suites::eval {

/// Metadata of the output: config, eval, ran, switches, each JSON.
std::map<std::string, std::string> record_of(const Evaluation& run, const std::string& op,
                                             const nsa::SwitchSet& switches);

}  // namespace suites::eval
