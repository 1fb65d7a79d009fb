#include "harness/stats/selection.h"

#include <algorithm>

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

void require_evidence(const EvidenceView& view) {
  if (!view.missing.empty()) throw NoData("phase " + view.phase + ": " + view.missing);
  if (view.groups.empty()) throw NoData("phase " + view.phase + ": no process reported");
  for (const GroupEvidence& group : view.groups)
    if (group.unusable.empty()) return;
  throw NoData("process " + view.groups.front().id + ": " + view.groups.front().unusable);
}

void require_complete(const EvidenceView& view) {
  require_evidence(view);
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
  std::string void_reason;  // a matching sample was seen, but its case failed

  bool matches(const SampleLine& sample) const {
    return std::ranges::find(names, sample.series) != names.end() &&
           (source.case_id.empty() || sample.case_id == source.case_id);
  }

  Series of_group(const GroupEvidence& group) {
    Series series{group.id, group.file, "", {}, {}, {}, {}, {}};
    std::string case_id;
    for (const SampleLine& sample : group.samples) {
      if (!matches(sample)) continue;
      if (!case_is_ok(group, sample.case_id)) {
        void_reason = "case " + sample.case_id + " did not end ok in " + group.id +
                      ", which voids its samples";
        continue;
      }
      add(series, sample, case_id);
    }
    if (series.clocks_mhz.size() != series.values.size()) series.clocks_mhz.clear();
    return series;
  }

  void add(Series& series, const SampleLine& sample, std::string& case_id) const {
    if (series.values.empty()) {
      case_id = sample.case_id;
      series.unit = sample.unit;
    }
    if (sample.case_id != case_id)
      throw NoData("series '" + sample.series + "' stands in cases '" + case_id + "' and '" +
                   sample.case_id + "'; the metric's source must name one as CASE/SERIES");
    if (sample.unit != series.unit)
      throw NoData("series '" + sample.series + "' has samples in '" + series.unit + "' and '" +
                   sample.unit + "'");
    series.values.push_back(sample.value);
    series.rounds.push_back(sample.round);
    if (sample.clock_mhz) series.clocks_mhz.push_back(*sample.clock_mhz);
    if (!sample.throttle.empty()) series.throttles.push_back(sample.throttle);
    if (sample.ran_pct) series.ran_pct.push_back(*sample.ran_pct);
  }
};

std::vector<Series> collect(Pick& pick) {
  std::vector<Series> found;
  for (const GroupEvidence& group : pick.view.groups) {
    if (!group.unusable.empty()) continue;
    Series series = pick.of_group(group);
    if (series.values.empty()) continue;
    if (!found.empty() && found.front().unit != series.unit)
      throw NoData("processes " + found.front().process + " and " + series.process +
                   " measured in different units");
    found.push_back(std::move(series));
  }
  return found;
}

}  // namespace

std::vector<Series> find_series(const EvidenceView& view, const Source& source,
                                const std::vector<std::string>& names) {
  Pick pick{view, source, names, ""};
  return collect(pick);
}

std::vector<Series> select_series(const EvidenceView& view, const Source& source,
                                  const std::vector<std::string>& names) {
  require_evidence(view);
  Pick pick{view, source, names, ""};
  std::vector<Series> found = collect(pick);
  if (found.empty() && !pick.void_reason.empty()) throw NoData(pick.void_reason);
  if (found.empty())
    throw NoData("no samples of series '" + names.front() + "'" +
                 (source.case_id.empty() ? "" : " in case '" + source.case_id + "'"));
  return found;
}

}  // namespace harness::stats
