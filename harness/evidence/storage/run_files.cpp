#include "harness/evidence/storage/run_files.h"

#include "harness/evidence/derive/environment_sections.h"
#include "harness/runbook/checks/names.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace {

/// Names that become paths, programs and variables when the run goes on, or is promoted: a folder
/// may come from anywhere, so they are held to the grammar of runbooks once more.
void require_plain_names(const RunFiles& files) {
  if (!is_plain_name(files.run.runbook))
    throw EvidenceError("run.json", "runbook " + in_quotes(files.run.runbook) +
                                        " must be lower case letters, digits and _");
  for (const PlannedPhase& phase : files.plan.phases) {
    const auto require = [&](bool good, const char* what, const std::string& name) {
      if (!good)
        throw EvidenceError("plan.json", "phase " + in_quotes(phase.id) + ": " + what + " " +
                                             in_quotes(name) + " cannot be one");
    };
    require(is_plain_name(phase.id), "phase", phase.id);
    require(contains(program_names(), phase.program), "program", phase.program);
    for (const PlannedGroup& group : phase.groups)
      require(is_plain_name(group.id), "process", group.id);
    for (const PlannedStage& stage : phase.further)
      for (const PlannedGroup& group : stage.groups)
        require(is_plain_name(group.id), "process", group.id);
    for (const auto& [name, value] : phase.switches)
      require(name.starts_with("NSA_"), "switch", name);
  }
}

/// A phase that the plan kept from running.
PhaseEnd end_of_plan(const PlannedPhase& planned) {
  PhaseEnd end;
  end.status = planned.decision == Decision::kDefer  ? StepStatus::kDeferred
               : planned.decision == Decision::kFail ? StepStatus::kFailed
                                                     : StepStatus::kNotRun;
  end.cause = planned.cause;
  end.reason = planned.reason;
  return end;
}

StepStatus status_of(const std::string& text, const std::string& file) {
  for (const auto& [status, name] : EnumNames<StepStatus>::names)
    if (name == text) return status;
  throw EvidenceError(file, "status " + in_quotes(text) +
                                " is none of COMPLETED, PARTIAL, DEFERRED, FAILED, NOT_RUN");
}

/// Groups that failed by a fault of the machine, when the phase did not complete in spite of it.
std::vector<std::string> faults_of(const nlohmann::json& record, const std::string& phase) {
  std::vector<std::string> faults;
  for (const auto& group : record.value("groups", nlohmann::json::array()))
    if (group.value("infrastructure", false) && group.value("status", "") != "COMPLETED")
      faults.push_back(phase + "/" + group.value("group", "") + ": " + group.value("cause", "") +
                       ", " + group.value("reason", ""));
  return faults;
}

std::vector<SlowProcess> slow_of(const nlohmann::json& record) {
  std::vector<SlowProcess> slow;
  for (const auto& group : record.value("groups", nlohmann::json::array())) {
    if (!group.contains("slow") || group["slow"].is_null()) continue;
    const auto& seen = group["slow"];
    slow.push_back({group.value("group", ""), seen.at("rate").get<double>(),
                    seen.at("floor").get<double>(), seen.at("unit").get<std::string>(),
                    seen.at("eta_s").get<double>()});
  }
  return slow;
}

}  // namespace

RunFiles read_run_files(const RunFolder& run) {
  RunFiles files{read_as<RunInfo>(run, "run.json"), read_as<Runbook>(run, "runbook.json"),
                 read_as<Kinds>(run, "kinds.json"), read_as<Plan>(run, "plan.json"),
                 run.read_json("environment.json")};
  require_sections(files.environment, "environment.json");
  if (!files.run.runbook_sha256.empty() && files.run.runbook_sha256 != run.sha256("runbook.json"))
    throw EvidenceError("runbook.json", "is not the runbook that run.json names (sha256 differs)");
  for (const PhaseSpec& phase : files.runbook.phases) {
    bool planned = false;
    for (const PlannedPhase& p : files.plan.phases) planned |= p.id == phase.id;
    if (!planned)
      throw EvidenceError("plan.json", "lacks the phase '" + phase.id + "' of runbook.json");
  }
  require_plain_names(files);
  for (const PlannedPhase& phase : files.plan.phases)
    if (!files.kinds.contains(phase.kind))
      throw EvidenceError("kinds.json",
                          "lacks the kind '" + phase.kind + "' of phase '" + phase.id + "'");
  return files;
}

PhaseEnd read_phase_end(const RunFolder& run, const PlannedPhase& planned) {
  const std::string file = "phases/" + planned.id + "/phase.json";
  const bool ran =
      planned.decision == Decision::kRun || planned.decision == Decision::kRunWithDeviation;
  if (!run.has(file)) {
    if (!ran) return end_of_plan(planned);
    throw EvidenceError(file, "is missing: the phase did not end; go on with --resume");
  }
  const nlohmann::json record = run.read_json(file);
  try {
    PhaseEnd end;
    end.status = status_of(record.at("status").get<std::string>(), file);
    end.cause = record.value("cause", "");
    end.reason = record.value("reason", "");
    end.seconds = record.value("seconds", 0.0);
    end.attempts = record.value("attempts", int64_t{0});
    end.slow = slow_of(record);
    if (end.status != StepStatus::kCompleted) end.faults = faults_of(record, planned.id);
    return end;
  } catch (const nlohmann::json::exception& e) {
    throw EvidenceError(file, std::string("is not a phase record: ") + e.what());
  }
}

}  // namespace harness
