#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nsa/diagnostics/run_record.h"
#include "suites/bench/targets/target_case.h"
#include "suites/compare/selection.h"
#include "suites/conformance/checks/check.h"

/// What the rows of every report of nsa-bench have in common.
namespace suites {

/// Device, libraries, seed and no cases yet.
nlohmann::json bench_report(at::Device device, uint64_t seed);
/// Throws std::invalid_argument when `filter` left no case in the report.
void require_cases(const nlohmann::json& report, const std::string& filter);

/// A case of which nothing is known yet.
nlohmann::json case_row(const std::string& id, const CaseConfig& config);

/// The row of a case, filled in by `run`. An exception of `run` (such as out of memory) is a
/// problem of that case alone: its memory is returned to the device before the next one begins.
nlohmann::json run_case(const std::string& id, const CaseConfig& config, at::Device device,
                        const std::function<void(nlohmann::json& row)>& run);

/// Counts checks; one that failed, and no checks at all, are problems.
void note_checks(const Checks& checks, nlohmann::json& row);
/// The certificate of a choice of blocks.
void note_selection(const SelectionReport& selection, nlohmann::json& row);
/// `ran`: what computed every branch and the choice of blocks. Anything but the kernels, `fused` or
/// `cpu`, is a problem: times of it are not theirs.
void note_paths(const std::vector<nsa::RanBackend>& ran, nlohmann::json& row,
                const std::string& kernels = "fused");
/// Floor, target, stretch and peer beside the hot median of a pass.
void note_figures(const TargetFigures& known, nlohmann::json& pass);

}  // namespace suites
