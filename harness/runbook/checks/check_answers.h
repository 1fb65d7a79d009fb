#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/runbook/runbook.h"
#include "harness/schema/parse/source.h"

namespace harness {

/// The answer, the questions and the next steps of a runbook: every figure and criterion they name
/// exists, every question has criteria, and every criterion that can turn the verdict belongs to a
/// question. A runbook without questions is judged, too; its report then goes by steps.
void check_answers(const Source& source, const nlohmann::json& document, const Runbook& runbook,
                   const std::vector<std::string>& metrics);

}  // namespace harness
