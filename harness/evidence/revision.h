#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/evidence/error.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/results/results.h"

/// Revisions: a run may replace a finished one of the same runbook. It keeps that run's results and
/// ledger in superseded/, names its ledger head in run.json and compares criterion by criterion.
namespace harness {

/// Makes `info` the next revision of the finished run `before` and puts the files that prove it
/// into `attached` (path in the new run -> content). Throws EvidenceError when `before` is not
/// whole by its own ledger, ConfigError when it is of another runbook.
void follow_revision(const RunFolder& before, const std::string& runbook, RunInfo& info,
                     std::map<std::string, std::string>& attached);

/// Results of the run that `run` supersedes. Throws EvidenceError when superseded/ is missing or is
/// not what the ledger head `head` covers.
Results read_superseded(const RunFolder& run, const std::string& head);

/// "10 ms [9, 11]", "withheld", "none", or "–" when there is no figure.
std::string figure_text(const Metric* metric);

/// Every criterion of either run with its verdict, its figure and the bound that was compared in
/// both, and what that means, as a table without title. Only PASS is better than other verdicts: a
/// FAIL that is not decided any more is "no longer decided".
nlohmann::json criteria_table(const Results& before, const Results& now, const std::string& then,
                              const std::string& here);

/// Table "revisions": the criteria of two revisions.
nlohmann::json revision_table(const Results& before, const Results& now);

}  // namespace harness
