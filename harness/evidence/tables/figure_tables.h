#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/evidence/derive/raw_evidence.h"
#include "harness/results/results.h"
#include "harness/runbook/plan/plan.h"

/// Tables of the report that put figures side by side: {id, title, phase, columns, rows}.
namespace harness {

/// The tables that a kind declares, with the figures of one of its phases in the cells "=NAME". A
/// figure that does not exist is "none" or "withheld"; its reason stands with the figure. A table
/// without rows is not shown.
std::vector<nlohmann::json> kind_tables(const KindSpec& kind, const std::string& phase,
                                        std::span<const Metric> figures);

/// Whether a kind asks for the table of training runs: it declares a table "training" without rows.
bool declares_training(const KindSpec& kind);

/// One training phase as a row: what was asked for (S, B), how far the process came, and its rate,
/// memory and loss.
nlohmann::json training_row(const PlannedPhase& plan, const PhaseResult& result,
                            const std::vector<RawGroup>& groups, std::span<const Metric> figures);

/// Table "training" of these rows; none without a row.
std::vector<nlohmann::json> training_table(const std::vector<nlohmann::json>& rows);

}  // namespace harness
