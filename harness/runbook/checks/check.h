#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "harness/runbook/load.h"
#include "harness/schema/parse/source.h"

/// Everything about a runbook or a kind that can be judged without a machine. All throw ConfigError
/// at the position of the value that is wrong. `document` is what the struct was read from.
namespace harness {

/// Ids of phases, and of criteria in each phase, are given once. For each file before merging,
/// because merging by id would hide a second one.
void check_unique_ids(const Source& source, const nlohmann::json& document);

/// A kind file: name equal to `stem`, closed lists, metric names, argument defaults.
void check_kind(const Source& source, const nlohmann::json& document, const KindSpec& kind,
                const std::string& stem);

/// A merged runbook against the kinds.
void check_runbook(const Source& source, const nlohmann::json& document, const Runbook& runbook,
                   const Kinds& kinds);

}  // namespace harness
