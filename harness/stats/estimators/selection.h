#pragma once
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/runbook/runbook.h"
#include "harness/stats/estimators/evidence_view.h"

/// How estimators pick their lines: by name and case, without those of failed cases and of
/// processes whose evidence does not count.
namespace harness::stats {

/// There is no figure; the text becomes Metric::null_reason.
struct NoData : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "CASE/NAME" or "NAME", "/NAME" where the name has slashes of its own; an empty name where the
/// source has none.
struct Source {
  std::string case_id;  ///< empty: any
  std::string name;
};
Source parse_source(const std::string& text);

/// The values of one series in one process, in file order.
struct Series {
  std::string process;
  std::string file;
  std::string unit;
  std::vector<double> values;
  std::vector<double> clocks_mhz;    ///< as long as values, or empty when a sample lacks its clock
  std::vector<int64_t> rounds = {};  ///< of the schedule, as long as values
  std::vector<std::string> throttles = {};  ///< where known: none, or what held the clock down
  std::vector<double> ran_pct = {};         ///< where known: share of time with a core
};

/// One entry a process that has the series. A sample belongs when its series is one of `names` and
/// its case is source.case_id (any when empty). Throws NoData when samples of several cases would
/// be mixed, when units differ, and when a part of what was planned is not there: a process whose
/// lines do not count or that has no such sample, a case that failed in one of them, a sample that
/// is null. What is left would be a choice made by whatever went wrong.
std::vector<Series> select_series(const EvidenceView& view, const Source& source,
                                  const std::vector<std::string>& names);

/// The same; empty instead of NoData when no sample has such a name, and without asking that every
/// process has one.
std::vector<Series> find_series(const EvidenceView& view, const Source& source,
                                const std::vector<std::string>& names);

/// Throws NoData unless every planned process reported and all its lines count: a figure over part
/// of the evidence would be wrong, not imprecise.
void require_complete(const EvidenceView& view);

/// The first failed case of a process that counts, as "case X failed in g01: REASON".
std::optional<std::string> failed_case(const EvidenceView& view);

/// Why a speed is not valid: "not valid, output mismatch: ..." when a check failed in a process
/// that counts.
std::optional<std::string> output_mismatch(const EvidenceView& view);

/// Whether the case ended ok in this process. A case without an end did not.
bool case_is_ok(const GroupEvidence& group, const std::string& case_id);

}  // namespace harness::stats
