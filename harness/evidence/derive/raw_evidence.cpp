#include "harness/evidence/derive/raw_evidence.h"

#include <algorithm>
#include <cmath>

#include "base/protocol/lines.h"

namespace harness {
namespace {

/// The raw files of a group: GROUP.jsonl, or one GROUP.rN.jsonl a rank.
std::vector<std::string> files_of(const RunFolder& run, const std::string& phase,
                                  const std::string& group) {
  const std::string stem = "phases/" + phase + "/" + group;
  if (run.has(stem + ".jsonl")) return {stem + ".jsonl"};
  std::vector<std::string> ranks;
  for (const std::string& path : run.paths())
    if (path.starts_with(stem + ".r") && path.ends_with(".jsonl")) ranks.push_back(path);
  return ranks;
}

std::string name_of(const std::string& file) {
  const std::string base = file.substr(file.rfind('/') + 1);
  return base.substr(0, base.size() - std::string(".jsonl").size());
}

std::optional<double> number_of(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number()) return value.get<double>();
  return std::nullopt;
}

/// Sorts the lines of one file into what statistics, tables and findings read.
struct Sorter {
  GroupEvidence& evidence;
  RawGroup& raw;

  void operator()(const base::protocol::Hello& line) { raw.hello = line; }
  void operator()(const base::protocol::Check& line) {
    evidence.checks.push_back({line.case_id, line.id, line.ok, line.code, line.detail});
  }
  void operator()(const base::protocol::Sample& line) {
    evidence.samples.push_back({line.case_id, line.series, line.value.value_or(NAN), line.unit,
                                line.round, line.order, line.clock_mhz, line.throttle, line.ran_pct,
                                line.value ? "" : line.reason});
  }
  void operator()(const base::protocol::Metric& line) {
    evidence.metrics.push_back(
        {line.case_id, line.name, number_of(line.value), line.unit, line.reason});
  }
  void operator()(const base::protocol::CaseEnd& line) {
    evidence.cases.push_back({line.case_id, line.status == "ok", line.reason});
  }
  void operator()(const base::protocol::Finding& line) { raw.findings.push_back(line); }
  void operator()(const base::protocol::Table& line) { raw.tables.push_back(line); }
  void operator()(const base::protocol::Beat& line) {
    if (line.at == base::protocol::kEarlierStep) raw.earlier_steps.push_back(line);
    if (line.at != base::protocol::kStep) return;
    raw.last_step = std::max(raw.last_step, line.step);
    raw.steps.push_back(line);
  }
  void operator()(const base::protocol::Artifact&) {}
  void operator()(const base::protocol::Done&) {}
};

std::vector<std::string> case_ids(const PlannedPhase& planned) {
  std::vector<std::string> ids;
  for (const PlannedCase& one : planned.cases) ids.push_back(one.id);
  return ids;
}

void read_group(const RunFolder& run, const PlannedPhase& planned, const std::string& file,
                RawPhase& phase) {
  GroupEvidence evidence{.id = name_of(file),
                         .file = file,
                         .unusable = "",
                         .cases = {},
                         .checks = {},
                         .samples = {},
                         .metrics = {}};
  RawGroup raw{.id = evidence.id,
               .file = file,
               .unusable = "",
               .hello = {},
               .findings = {},
               .tables = {},
               .last_step = 0};
  const auto transcript =
      base::protocol::read_transcript(run.read(file), {planned.mode, case_ids(planned)});
  if (!transcript.violations.empty()) {
    const auto& first = transcript.violations.front();
    raw.unusable = first.name + (first.line > 0 ? " in line " + std::to_string(first.line) : "") +
                   ": " + first.detail;
    evidence.unusable = raw.unusable;
  }
  Sorter sorter{evidence, raw};
  for (const auto& line : transcript.lines)
    if (raw.unusable.empty() || std::holds_alternative<base::protocol::Hello>(line.message) ||
        std::holds_alternative<base::protocol::Beat>(line.message))
      std::visit(sorter, line.message);
  phase.view.groups.push_back(std::move(evidence));
  phase.groups.push_back(std::move(raw));
}

void add_cases(const PlannedPhase& planned, const GroupEvidence& group, RawPhase& phase) {
  const bool several = planned.groups.size() > 1 || group.id != planned.groups.front().id;
  for (const PlannedCase& one : planned.cases) {
    CaseResult result{several ? group.id + "/" + one.id : one.id, "missing", group.unusable,
                      group.file};
    const auto ended = std::find_if(group.cases.begin(), group.cases.end(),
                                    [&](const CaseLine& line) { return line.id == one.id; });
    if (ended != group.cases.end()) {
      result.status = ended->ok ? "ok" : "failed";
      result.reason = ended->reason;
    }
    phase.cases.push_back(result);
  }
}

/// A case that several ranks ran counts once, when each of them ended it ok.
int64_t count_ok(const PlannedPhase& planned, const std::vector<GroupEvidence>& evidence) {
  int64_t count = 0;
  for (const PlannedGroup& group : planned.groups)
    for (const PlannedCase& one : planned.cases) {
      const auto of_group = [&](const GroupEvidence& each) {
        return each.id == group.id || each.id.starts_with(group.id + ".r");
      };
      const auto ended_ok = [&](const GroupEvidence& each) {
        return !of_group(each) || std::ranges::any_of(each.cases, [&](const CaseLine& line) {
          return line.id == one.id && line.ok;
        });
      };
      count += std::ranges::any_of(evidence, of_group) && std::ranges::all_of(evidence, ended_ok);
    }
  return count;
}

/// A planned group without a file: nothing is known of it.
void add_absent_group(const PlannedPhase& planned, const std::string& id, const PhaseEnd& end,
                      RawPhase& phase) {
  GroupEvidence evidence{.id = id,
                         .file = "",
                         .unusable = "no raw evidence",
                         .cases = {},
                         .checks = {},
                         .samples = {},
                         .metrics = {}};
  if (end.status == StepStatus::kCompleted)
    phase.problems.emplace_back("phases/" + planned.id + "/" + id + ".jsonl",
                                "is missing, and phase.json records COMPLETED");
  phase.view.groups.push_back(evidence);
  phase.groups.push_back({.id = id,
                          .file = "",
                          .unusable = evidence.unusable,
                          .hello = {},
                          .findings = {},
                          .tables = {},
                          .last_step = 0});
}

bool produced_evidence(const PhaseEnd& end) {
  return end.status != StepStatus::kDeferred && end.status != StepStatus::kNotRun;
}

}  // namespace

RawPhase read_raw_phase(const RunFolder& run, const RunFiles& files, const PlannedPhase& planned,
                        const PhaseEnd& end) {
  RawPhase phase;
  phase.view.phase = planned.id;
  phase.view.device = planned.device;
  phase.view.seed = static_cast<uint64_t>(files.run.seed);
  phase.view.groups_planned = static_cast<int64_t>(planned.groups.size());
  phase.cases_planned = static_cast<int64_t>(planned.groups.size() * planned.cases.size());
  if (!produced_evidence(end)) {
    phase.view.missing = "phase is " + std::string(enum_name(end.status)) +
                         (end.reason.empty() ? "" : ": " + end.reason);
    return phase;
  }
  for (const PlannedGroup& group : planned.groups) {
    const auto raw_files = files_of(run, planned.id, group.id);
    for (const std::string& file : raw_files) read_group(run, planned, file, phase);
    if (raw_files.empty()) add_absent_group(planned, group.id, end, phase);
  }
  for (const GroupEvidence& group : phase.view.groups) {
    add_cases(planned, group, phase);
    if (end.status == StepStatus::kCompleted && !group.unusable.empty() && !group.file.empty())
      phase.problems.emplace_back(group.file, group.unusable + "; phase.json records COMPLETED");
  }
  phase.cases_ok = count_ok(planned, phase.view.groups);
  std::sort(phase.cases.begin(), phase.cases.end(),
            [](const CaseResult& a, const CaseResult& b) { return a.id < b.id; });
  return phase;
}

}  // namespace harness
