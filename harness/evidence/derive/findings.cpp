#include "harness/evidence/derive/findings.h"

#include <algorithm>
#include <array>
#include <map>

#include "harness/evidence/derive/root_causes.h"
#include "harness/evidence/derive/slow_rank.h"
#include "harness/results/number.h"

namespace harness {
namespace {

struct CodeRow {
  const char *code, *cause, *action;
  Priority priority;
};

constexpr Priority kNow = Priority::kImmediate;
constexpr Priority kLater = Priority::kFollowUp;

constexpr auto kCodes = std::to_array<CodeRow>({
    {"ORACLE_MISMATCH", "the candidate computes something else than the fp64 oracle",
     "compare stage by stage with nsa/reference at the first differing row; trust no speed of this "
     "candidate",
     kNow},
    {"CAUSALITY_LEAK", "an output depends on a later token",
     "check masks, window length and forced blocks at the named position", kNow},
    {"ROPE_PROPERTY", "scores do not depend on relative position only",
     "check that the rotation works on heads, not on the flattened vector", kNow},
    {"MODE_DISAGREEMENT", "prefill and decode, or two paths of one operator, differ",
     "compare their selections and what the caches hold", kNow},
    {"SHARDING_DIFFERS",
     "ranks with parts of the parameters train another model than ranks with all",
     "compare losses step by step with --shard none; look at the first step that differs", kNow},
    {"SPEEDUP_WITHHELD", "outputs did not match, so a speed means nothing",
     "repair the outputs, then measure again", kNow},
    {"PATH_PROOF", "another path ran than the one asked for",
     "look for a silent fallback of the requested backend", kNow},
    {"LOSS_TOO_GOOD", "the loss is lower than the data allow",
     "check the label shift and that targets are not inputs", kNow},
    {"DIVERGED", "the loss rose above that of a model that knows nothing",
     "lower the learning rate, or lengthen its warm-up", kNow},
    {"NON_FINITE", "a value is NaN or infinite",
     "look at the first non-finite tensor the worker names", kNow},
    {"DATA_SUBSTITUTED", "the named corpus was not there and other data were used",
     "bring the corpus; criteria on real data mean nothing until then", kNow},
    {"PROVENANCE_MISMATCH", "the programs were not built from the named checkout",
     "build the default target and run again", kNow},
    {"GRAPH_BROKEN", "a parameter gets no gradient",
     "look for an operation of the selected branch that copies without recording", kNow},
    {"NO_CONTRAST", "two states that are compared are one and the same",
     "look at the switch or option between the arms: what ran does not show it", kNow},
    {"STUCK_METRIC", "a figure stays at one exact constant",
     "check that it is computed from this step's tensors", kLater},
    {"BASELINE_INVALID", "the baseline is missing, not positive or of other hardware",
     "promote a baseline measured on this hardware", kLater},
    {"EVIDENCE_DAMAGED", "a file of the run is missing, cut off or contradicts another",
     "run the phase again with --resume", kNow},
    {"STALE_LEFTOVERS", "files or processes of an earlier run were there",
     "remove them and run again", kLater},
    {"OOM", "the device had too little memory", "reduce batch or length, or free the device", kNow},
    {"HANG", "no progress within the allowance", "read the autopsy beside the phase's evidence",
     kNow},
    {"SLOW", "the work advances under the floor of its rate",
     "profile a step and look at what else runs on the device; raise timeout_s to let it finish",
     kLater},
    {"TIMEOUT", "the process ran past its time", "raise timeout_s, or find what became slow", kNow},
    {"SIGNAL", "a signal ended the process", "read the phase's GROUP.err", kNow},
    {"DISK_FULL", "the disk of the run folder is full", "free space and go on with --resume", kNow},
    {"CONFIG_ERROR", "an argument or a switch does not exist, or has a value it cannot have",
     "correct the name or value that is named, or unset the variable, and run again", kNow},
    {"EXIT_CODE", "the program ended with an error of its own",
     "read the phase's GROUP.err; run the phase again with --only", kNow},
    {"NOT_STARTED", "the program of the phase is missing or cannot be executed",
     "build the default target (tools/nsa-validate does), or correct `run`", kNow},
    {"INTERRUPTED", "the run was interrupted while the phase ran", "go on with --resume", kNow},
    {"BUILTIN_ERROR", "the engine could not do this phase itself",
     "read the reason; go on with --resume once it is gone", kNow},
    {"OTHER_PROGRAM", "a program or a library is not that of the recorded build",
     "unset LD_LIBRARY_PATH or point it to LibTorch only, build the default target, run again",
     kNow},
    {"MISSING_ARTIFACT", "the phase ended without a file it promised",
     "read the phase's GROUP.err; correct `artifacts` if the file has another name", kNow},
    {"NO_DONE", "the program ended before it had written all its lines",
     "read the phase's GROUP.err", kNow},
    {"MISSING_CASE", "a planned case was never ended: its figures would be of fewer cases",
     "read the phase's GROUP.err; make the program end every case it was given", kNow},
    {"NO_BUILD_ID", "the program reports no build id",
     "build the default target and run again; a program of another build shows itself by its id",
     kNow},
    {"NO_TESTS", "the filter matches no test: nothing was tried",
     "compare the filter with the program's list of tests", kNow},
    {"BAD_TEST_COUNT", "the tests that ran are not the tests that were listed",
     "read the phase's GROUP.out for a test that ended the program", kNow},
    {"BAD_TEST_JSON", "the test program wrote no report, or one that is not JSON",
     "read the phase's GROUP.err", kNow},
    {"TEST_FAILED", "a test does not hold", "run the named test alone and read its message", kNow},
    {"TEST_SKIPPED", "a planned test did not run, and what did not run has not passed",
     "bring what the test asks for, or leave it out of the filter", kNow},
    {"TEST_DISABLED", "a planned test is disabled, and what did not run has not passed",
     "enable the test, or leave it out of the filter", kNow},
    {"GPU_NOT_FREE", "another process holds the device",
     "end the named process: measured figures would be its too", kNow},
    {"FAULT_MISSED", "an injected fault was not reported: the instrument is blind to it",
     "trust no PASS of the checks that should have seen it", kNow},
    {"FALSE_ALARM", "a fault was reported where none was injected",
     "look at the named check before believing any FAIL of it", kNow},
    {"INVARIANT_VIOLATED", "an operator breaks a property that holds for every input",
     "run the named case alone with its seed", kNow},
    {"LR_TRACE", "the learning rate is not that of the schedule",
     "check warm-up, length and accumulation factor of the schedule", kNow},
    {"DATA_MISSING", "the corpus is not there",
     "bring it with tools/setup or nsa-data; criteria on real data mean nothing until then", kNow},
    {"DIFF_OUT_OF_SCOPE", "a change touches files outside its declared scope",
     "split the change, or name the file where a reviewer sees it", kNow},
    {"THRESHOLD_EDIT", "a change edits what decides whether it passes",
     "look at the table of edits; state the reason with the change, or split it off", kNow},
    {"AB_VERDICT", "an A/B reports SLOWER beyond margin and noise, and a gate rests on it",
     "look at what changed between the arms; the pairs stand in the evidence", kNow},
    {"THROTTLED", "the clocks of the arms differ, so their times are not comparable",
     "let the device cool down or lock its clocks, and measure again", kLater},
    {"LOADER_STALL", "the loader is slower than the step it feeds",
     "raise prefetch and queue (NSA_FWE_PREFETCH, NSA_FWE_Q), warm up the loader, look at the disk",
     kNow},
    {"HOST_BOUND", "the host cannot launch work as fast as the device ends it",
     "remove host synchronisations from the step, then fuse kernels or capture the step as a graph",
     kNow},
    {"MEMORY_GROWS", "something keeps what a step made",
     "look for tensors kept across steps (records, graphs, caches)", kLater},
    {"GAP_ATTRIBUTED", "a throughput gate failed and single changes explain the gap",
     "apply the factors in order of their share", kNow},
    {"THROUGHPUT_GAP", "training is slower than it was expected to be, beyond its interval",
     "go through the causes table, then the factors in order of their share", kNow},
    {"RATE_GATE", "training is slower than a long run may start with",
     "close the gap; production stays closed until the gate passes", kNow},
    {"CONFIG_DRIFT", "a switch has another value than its default or the declared one",
     "unset it, or declare it in the phase's switches", kNow},
    {"RANK_FAULT", "a rank is missing, died or stands still",
     "read the last mark of every rank in the autopsy; compare world size and devices", kNow},
    {"SLOW_RANK", "one rank is slower than the others, which wait for it in every step",
     "look at what else runs on its device and cores, at its clocks, and at where its data lie",
     kLater},
    {"BUCKET_MISMATCH", "gradient buckets are not those that were asked for",
     "compare the sizes listed beside the request; a parameter larger than the cap makes its own "
     "bucket",
     kLater},
    {"RESUME_DIFFERS", "the resumed run is not the run that was interrupted",
     "look for state that the checkpoint lacks: optimizer, generators, data position", kNow},
    {"SHARES_DO_NOT_SUM", "parts of a step do not add up to the step",
     "trust no share of this profile; look for work that several ranges count", kNow},
    {"PROFILE_DROPPED", "records of the profile were lost, so its times and counts are too small",
     "record fewer steps (args.steps), and nothing else at the same time", kLater},
    {"ROOFLINE_EXCEEDED", "the formula counts more than was done, or data came from a cache",
     "trust no percentage of this range; compare its work with the formula of the kind", kLater},
    {"PROFILE_DILATED", "recording makes the host slower, so it launches later",
     "believe durations of kernels, not idle times and step times of this profile; record larger "
     "steps",
     kLater},
    {"PROFILE_INCOMPLETE", "launches and recorded kernels of a step do not match",
     "trust no count of this profile; look for calls that were not recorded", kLater},
    {"CUPTI_BUSY", "another profiler holds the one place that CUPTI gives",
     "end the other profiler (nsys, ncu, a sanitizer) and run the phase again", kLater},
    {"CHECK_FAILED", "a check without a code of its own does not hold",
     "read its detail in the phase's evidence", kNow},
});

/// Causes that all mean that the result channel cannot be trusted.
constexpr auto kBrokenProtocol = std::to_array<std::string_view>(
    {"NO_HELLO", "HELLO_TWICE", "GARBAGE", "BAD_TIME", "FOREIGN_CASE", "DUPLICATE_CASE",
     "DUPLICATE_CHECK", "DUPLICATE_SAMPLE", "BAD_MODE", "AFTER_DONE", "BAD_COUNT"});

std::string shortened(const std::string& text) {
  return text.size() <= 300 ? text : text.substr(0, 300) + " ...";
}

/// Failed checks of a phase, by code: how many, and the first.
struct Failed {
  int64_t count = 0;
  std::string first;
};

std::map<std::string, Failed> failed_checks(const RawPhase& raw) {
  std::map<std::string, Failed> failed;
  for (const GroupEvidence& group : raw.view.groups)
    for (const CheckLine& check : group.checks) {
      if (check.ok) continue;
      Failed& entry = failed[check.code.empty() ? "CHECK_FAILED" : check.code];
      if (entry.count++ == 0)
        entry.first = check.id + (check.case_id.empty() ? "" : " in case " + check.case_id) +
                      (check.detail.empty() ? "" : ": " + check.detail);
    }
  return failed;
}

Finding finding(std::string id, const std::string& code, std::string symptom, std::string fact) {
  const CodeAdvice advice = advice_for(code);
  return {std::move(id), code,          shortened(symptom), std::move(fact),
          advice.cause,  advice.action, advice.priority};
}

/// The id of the fact that a worker names: an id of the results, a figure of its own, or else the
/// phase.
std::string fact_id(const std::string& fact, const PhaseResult& phase, const RawPhase& raw) {
  const bool is_id =
      fact.size() > 2 && fact[1] == '-' && std::string("PCMA").find(fact[0]) != std::string::npos;
  if (is_id) return fact;
  for (const GroupEvidence& group : raw.view.groups)
    for (const MetricLine& line : group.metrics)
      if (line.name == fact) return "M-" + phase.name + "." + fact;
  return phase.id;
}

Finding reported_finding(const base::protocol::Finding& line, const std::string& id,
                         const PhaseResult& phase, const RawPhase& raw) {
  const CodeAdvice advice = advice_for(line.code);
  return {id,
          line.code,
          shortened(line.symptom),
          fact_id(line.fact, phase, raw),
          line.cause.empty() ? advice.cause : line.cause,
          line.action.empty() ? advice.action : line.action,
          line.priority == "immediate" ? kNow : kLater};
}

/// The slowest process in words: "g02 advances at 2 tok/s, the floor is 10 tok/s; 16 min 00 s
/// left".
std::string slow_text(const std::vector<SlowProcess>& slow) {
  const SlowProcess& worst = *std::min_element(
      slow.begin(), slow.end(),
      [](const auto& a, const auto& b) { return a.rate / a.floor < b.rate / b.floor; });
  const auto [rate, floor] = format_apart(worst.rate, worst.floor, worst.unit);
  return worst.group + " advances at " + rate + ", the floor is " + floor +
         (worst.eta_s > 0 ? "; " + format_duration(worst.eta_s) + " left when last seen slow"
                          : "") +
         (slow.size() > 1 ? "; " + std::to_string(slow.size()) + " processes are slow" : "");
}

/// "arm v2 ran at 1440 MHz, arm v1 at 1800 MHz; in cycles the speed-up is 1.51 (FASTER)".
std::string throttle_text(const Metric& metric) {
  const auto& clocks = metric.details.at("clocks");
  const auto arm = [&](const char* role) {
    return metric.details.at(role).at("arm").get<std::string>() + " at " +
           format_number(clocks.at(std::string(role) + "_mhz").get<double>(), 4) + " MHz";
  };
  return "arm " + metric.details.at("throttled").get<std::string>() +
         " was throttled: " + arm("baseline") + ", " + arm("candidate") +
         "; in cycles the speed-up is " +
         format_number(clocks.at("speedup_in_cycles").get<double>(), 3) + " (" +
         clocks.at("verdict_in_cycles").get<std::string>() + ")";
}

/// The paired figure behind a gate that failed because an arm is slower; null: another reason.
const Metric* decided_by_slower_arm(const CriterionResult& criterion, const Results& results) {
  if (criterion.severity == Severity::kInfo || criterion.verdict != CriterionVerdict::kFail)
    return nullptr;
  const auto metric = std::ranges::find(results.metrics, criterion.metric, &Metric::name);
  const bool slower = metric != results.metrics.end() && metric->method == "paired_ratio" &&
                      metric->verdict == "SLOWER";
  return slower ? &*metric : nullptr;
}

}  // namespace

CodeAdvice advice_for(const std::string& code) {
  for (const CodeRow& row : kCodes)
    if (code == row.code) return {row.cause, row.action, row.priority};
  if (std::ranges::find(kBrokenProtocol, std::string_view(code)) != kBrokenProtocol.end())
    return {"the program broke a rule of the worker protocol, so none of its lines count",
            "read the named line in the phase's evidence and correct the program", kNow};
  return {"not known to this program", "read the phase's evidence and its GROUP.err", kNow};
}

std::vector<Finding> check_findings(const PhaseResult& result, const RawPhase& raw) {
  std::vector<Finding> findings;
  for (const auto& [code, failed] : failed_checks(raw))
    findings.push_back(finding("F-" + result.name + "." + code, code,
                               std::to_string(failed.count) + " check" +
                                   (failed.count == 1 ? "" : "s") + " failed, first " +
                                   failed.first,
                               result.id));
  return findings;
}

std::vector<Finding> phase_findings(const PhaseResult& result, const RawPhase& raw,
                                    const std::vector<SlowProcess>& slow) {
  std::vector<Finding> findings;
  const std::string stem = "F-" + result.name + ".";
  std::map<std::string, int> numbered;
  for (const RawGroup& group : raw.groups)
    for (const base::protocol::Finding& line : group.findings)
      findings.push_back(reported_finding(
          line, stem + line.code + "." + std::to_string(++numbered[line.code]), result, raw));
  if (!slow.empty()) findings.push_back(finding(stem + "SLOW", "SLOW", slow_text(slow), result.id));
  if (const auto rank = slow_rank(raw.groups))
    findings.push_back(finding(stem + "SLOW_RANK", "SLOW_RANK", rank->text(), result.id));
  if (result.status == StepStatus::kFailed || result.status == StepStatus::kPartial)
    findings.push_back(finding(stem + "phase", result.cause.empty() ? "PHASE_FAILED" : result.cause,
                               "phase " + result.name + " is " +
                                   std::string(enum_name(result.status)) +
                                   (result.reason.empty() ? "" : ": " + result.reason),
                               result.id));
  for (const EvidenceError& problem : raw.problems)
    findings.push_back(
        finding("F-evidence." + problem.file(), "EVIDENCE_DAMAGED", problem.what(), result.id));
  return findings;
}

std::vector<Finding> result_findings(const Results& results) {
  std::vector<Finding> findings;
  for (const Metric& metric : results.metrics)
    if (!metric.withheld.empty() && metric.method == "paired_ratio")
      findings.push_back(finding("F-" + metric.name + ".SPEEDUP_WITHHELD", "SPEEDUP_WITHHELD",
                                 metric.withheld, metric.id));
  for (const Metric& metric : results.metrics)
    if (metric.details.is_object() && metric.details.contains("throttled"))
      findings.push_back(finding("F-" + metric.name + ".THROTTLED", "THROTTLED",
                                 throttle_text(metric), metric.id));
  for (const CriterionResult& criterion : results.criteria)
    if (const Metric* slower = decided_by_slower_arm(criterion, results))
      findings.push_back(finding("F-" + criterion.id + ".AB_VERDICT", "AB_VERDICT",
                                 "A/B verdict " + slower->verdict + ": " + criterion.reason,
                                 criterion.id));
  for (const CriterionResult& criterion : results.criteria)
    if (criterion.reason.starts_with("BASELINE_INVALID"))
      findings.push_back(finding("F-" + criterion.id + ".BASELINE_INVALID", "BASELINE_INVALID",
                                 criterion.reason, criterion.id));
  for (Finding& cause : root_causes(results)) findings.push_back(std::move(cause));
  return findings;
}

}  // namespace harness
