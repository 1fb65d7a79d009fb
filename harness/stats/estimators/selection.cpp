#include "harness/stats/estimators/selection.h"

#include <algorithm>
#include <string_view>

namespace harness::stats {

Source parse_source(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return {"", text};
  return {text.substr(0, slash), text.substr(slash + 1)};
}

bool case_is_ok(const GroupEvidence& group, const std::string& case_id) {
  return std::ranges::any_of(group.cases,
                             [&](const CaseLine& c) { return c.id == case_id && c.ok; });
}

void require_complete(const EvidenceView& view) {
  if (!view.missing.empty()) throw NoData("phase " + view.phase + ": " + view.missing);
  if (view.groups.empty()) throw NoData("phase " + view.phase + ": no process reported");
  for (const GroupEvidence& group : view.groups)
    if (!group.unusable.empty()) throw NoData("process " + group.id + ": " + group.unusable);
  const auto reported = static_cast<int64_t>(view.groups.size());
  if (reported < view.groups_planned)
    throw NoData(std::to_string(reported) + " of " + std::to_string(view.groups_planned) +
                 " processes reported");
}

std::optional<std::string> failed_case(const EvidenceView& view) {
  for (const GroupEvidence& group : view.groups) {
    if (!group.unusable.empty()) continue;
    for (const CaseLine& c : group.cases)
      if (!c.ok) return "case " + c.id + " failed in " + group.id + ": " + c.reason;
  }
  return std::nullopt;
}

std::optional<std::string> output_mismatch(const EvidenceView& view) {
  for (const GroupEvidence& group : view.groups) {
    if (!group.unusable.empty()) continue;
    for (const CheckLine& check : group.checks) {
      if (check.ok) continue;
      return "not valid, output mismatch: check " + check.id + " failed in case " + check.case_id +
             " of process " + group.id + (check.code.empty() ? "" : " (" + check.code + ")");
    }
  }
  return std::nullopt;
}

namespace {

struct Pick {
  const EvidenceView& view;
  const Source& source;
  const std::vector<std::string>& names;
  std::string case_id = source.case_id;  // of the samples; with none named, that of the first

  bool matches(const SampleLine& sample) const {
    return std::ranges::find(names, sample.series) != names.end() &&
           (source.case_id.empty() || sample.case_id == source.case_id);
  }

  Series of_group(const GroupEvidence& group) {
    Series series{group.id, group.file, "", {}, {}, {}, {}, {}};
    for (const SampleLine& sample : group.samples)
      if (matches(sample)) add(series, sample);
    if (series.clocks_mhz.size() != series.values.size()) series.clocks_mhz.clear();
    return series;
  }

  void add(Series& series, const SampleLine& sample) {
    if (case_id.empty()) case_id = sample.case_id;
    if (series.values.empty()) series.unit = sample.unit;
    if (sample.case_id != case_id)
      throw NoData("series '" + sample.series + "' stands in cases '" + case_id + "' and '" +
                   sample.case_id + "'; the metric's source must name one as CASE/SERIES");
    if (sample.unit != series.unit)
      throw NoData("series '" + sample.series + "' has samples in '" + series.unit + "' and '" +
                   sample.unit + "'");
    if (!sample.null_reason.empty())
      throw NoData("a sample of series '" + sample.series + "' in process " + series.process +
                   " is null: " + sample.null_reason);
    series.values.push_back(sample.value);
    series.rounds.push_back(sample.round);
    if (sample.clock_mhz) series.clocks_mhz.push_back(*sample.clock_mhz);
    if (!sample.throttle.empty()) series.throttles.push_back(sample.throttle);
    if (sample.ran_pct) series.ran_pct.push_back(*sample.ran_pct);
  }
};

/// A failed case voids its samples, and with them the figure: whatever made this process fail, the
/// others would stand for it.
void require_case(const EvidenceView& view, const std::string& case_id) {
  for (const GroupEvidence& group : view.groups) {
    if (case_is_ok(group, case_id)) continue;
    const auto end = std::ranges::find(group.cases, case_id, &CaseLine::id);
    throw NoData("case " + case_id + " did not end ok in " + group.id +
                 ", which voids its samples" +
                 (end == group.cases.end() || end->reason.empty() ? "" : ": " + end->reason));
  }
}

/// The planned process of a file: ranks of one share it.
std::string_view process_of(std::string_view id) { return id.substr(0, id.find(".r")); }

/// A process that completed without measuring anything was not left out on purpose.
void require_every_process(const EvidenceView& view, const std::vector<Series>& found,
                           const std::string& series) {
  for (const GroupEvidence& group : view.groups)
    if (std::ranges::none_of(found, [&](const Series& one) {
          return process_of(one.process) == process_of(group.id);
        }))
      throw NoData("process " + group.id + " has no sample of series '" + series + "'");
}

std::vector<Series> collect(Pick& pick) {
  std::vector<Series> found;
  for (const GroupEvidence& group : pick.view.groups) {
    Series series = pick.of_group(group);
    if (series.values.empty()) continue;
    if (!found.empty() && found.front().unit != series.unit)
      throw NoData("processes " + found.front().process + " and " + series.process +
                   " measured in different units");
    found.push_back(std::move(series));
  }
  if (!found.empty()) require_case(pick.view, pick.case_id);
  return found;
}

}  // namespace

std::vector<Series> find_series(const EvidenceView& view, const Source& source,
                                const std::vector<std::string>& names) {
  require_complete(view);
  Pick pick{view, source, names};
  return collect(pick);
}

std::vector<Series> select_series(const EvidenceView& view, const Source& source,
                                  const std::vector<std::string>& names) {
  std::vector<Series> found = find_series(view, source, names);
  if (found.empty())
    if (const auto failed = failed_case(view)) throw NoData(*failed);
  if (found.empty())
    throw NoData("no samples of series '" + names.front() + "'" +
                 (source.case_id.empty() ? "" : " in case '" + source.case_id + "'"));
  require_every_process(view, found, names.front());
  return found;
}

}  // namespace harness::stats
