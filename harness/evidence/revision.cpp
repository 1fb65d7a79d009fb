#include "harness/evidence/revision.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "harness/evidence/derive/derive.h"
#include "harness/evidence/storage/ledger.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/evidence/verify.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;
constexpr const char* kResults = "superseded/results.json";
constexpr const char* kLedger = "superseded/ledger.jsonl";
constexpr const char* kSame = "same";

std::string next_revision(const std::string& revision) {
  int64_t number = 1;
  std::from_chars(revision.data(), revision.data() + revision.size(), number);
  return std::to_string(number + 1);
}

const CriterionResult* find(const Results& results, const std::string& id) {
  const auto found = std::ranges::find(results.criteria, id, &CriterionResult::id);
  return found == results.criteria.end() ? nullptr : &*found;
}

bool decided(CriterionVerdict verdict) {
  return verdict == CriterionVerdict::kPass || verdict == CriterionVerdict::kFail;
}

/// Only PASS is better than the rest: an undecided criterion may still fail.
std::string change_text(const CriterionResult* before, const CriterionResult* now) {
  if (!before) return "new";
  if (!now) return "gone";
  if (now->verdict == before->verdict) return kSame;
  if (now->verdict == CriterionVerdict::kPass) return "better";
  if (before->verdict == CriterionVerdict::kPass) return "worse";
  if (now->verdict == CriterionVerdict::kFail) return "fails now";
  return decided(before->verdict) ? "no longer decided" : "not decided";
}

std::string verdict_text(const CriterionResult* one) {
  return one ? std::string(enum_name(one->verdict)) : "–";
}

const Metric* metric_of(const Results& results, const CriterionResult* one) {
  if (!one) return nullptr;
  const auto found = std::ranges::find(results.metrics, one->metric, &Metric::name);
  return found == results.metrics.end() ? nullptr : &*found;
}

/// The bound of the interval that was compared; an exact figure has none.
std::string bound_text(const CriterionResult* one, const Metric* metric) {
  const bool measured = metric != nullptr && metric->method != "exact";
  return one && one->observed && measured ? format_value(*one->observed, one->unit) : "–";
}

}  // namespace

std::string figure_text(const Metric* metric) {
  if (metric == nullptr) return "–";
  if (!metric->withheld.empty()) return "withheld";
  if (!metric->value) return "none";
  std::string text = format_value(*metric->value, metric->unit);
  if (metric->lo && metric->hi) text += " " + format_interval(*metric->lo, *metric->hi);
  return text;
}

void follow_revision(const RunFolder& before, const std::string& runbook, RunInfo& info,
                     std::map<std::string, std::string>& attached) {
  const Verification found = verify_files(before);
  if (!found.ok())
    throw EvidenceError(before.where().string(),
                        "cannot be superseded, it is not whole: " +
                            std::string(found.problems.empty() ? "its ledger covers no file"
                                                               : found.problems.front().what()));
  const Results results = read_results(before);
  if (results.run.runbook != runbook)
    throw ConfigError("--supersedes " + before.where().string() + ": it is a run of '" +
                      results.run.runbook + "', this is '" + runbook + "'");
  info.revision = next_revision(results.run.revision);
  info.supersedes = found.head;
  attached[kResults] = before.read("results.json");
  attached[kLedger] = before.read("ledger.jsonl");
}

Results read_superseded(const RunFolder& run, const std::string& head) {
  const Ledger ledger = read_ledger(run.read(kLedger));
  if (ledger.head != head)
    throw EvidenceError(kLedger, "has the head " + ledger.head + ", run.json names " + head);
  if (ledger.entries.back().sha256 != run.sha256(kResults))
    throw EvidenceError(kResults, "is not the one that the superseded ledger covers");
  return read_as<Results>(run, kResults);
}

json criteria_table(const Results& before, const Results& now, const std::string& then,
                    const std::string& here) {
  std::set<std::string> ids;
  for (const Results* each : {&before, &now})
    for (const CriterionResult& criterion : each->criteria) ids.insert(criterion.id);
  json rows = json::array();
  for (const std::string& id : ids) {
    const CriterionResult *old = find(before, id), *fresh = find(now, id);
    const Metric *was = metric_of(before, old), *is = metric_of(now, fresh);
    rows.push_back({id, verdict_text(old), figure_text(was), bound_text(old, was),
                    verdict_text(fresh), figure_text(is), bound_text(fresh, is),
                    change_text(old, fresh)});
  }
  return {{"id", ""},
          {"title", ""},
          {"phase", ""},
          {"columns",
           {"criterion", then, then + " observed", then + " bound", here, here + " observed",
            here + " bound", "change"}},
          {"rows", rows}};
}

json revision_table(const Results& before, const Results& now) {
  const std::string old = "revision " + before.run.revision;
  json table = criteria_table(before, now, old, "revision " + now.run.revision);
  table["id"] = "revisions";
  // Of 60 rows a reader looks for those that changed.
  std::map<std::string, int> changes;
  for (const json& row : table["rows"]) ++changes[row.back().get<std::string>()];
  std::stable_sort(table["rows"].begin(), table["rows"].end(), [](const json& a, const json& b) {
    return (a.back() != kSame) > (b.back() != kSame);
  });
  std::string counts;
  for (const auto& [change, count] : changes)
    counts += (counts.empty() ? "" : ", ") + std::to_string(count) + " " + change;
  table["title"] = "What changed since " + old + " (" + before.run.id + ", " + before.verdict.word +
                   "): " + counts;
  return table;
}

}  // namespace harness
