#include "harness/engine/group_runner.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/loader/search_path.h"
#include "base/protocol/ranks.h"
#include "harness/engine/interrupt.h"
#include "harness/engine/ranks/rank_runner.h"
#include "harness/engine/ranks/srun_ranks.h"
#include "harness/evidence/storage/files.h"
#include "harness/ingest/ingest.h"
#include "harness/process/elapsed.h"
#include "harness/process/os/proc_scan.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

double number_arg(const nlohmann::json& args, const char* name, double fallback) {
  const auto found = args.find(name);
  return found != args.end() && found->is_number() ? found->get<double>() : fallback;
}

/// Names of a group's raw files: GROUP, or GROUP.rN for each rank of several.
std::vector<std::string> evidence_stems(const PlannedPhase& phase, const std::string& group) {
  const bool has_ranks = phase.program == "nsa-train" || phase.program == "nsa-worker";
  const auto ranks = has_ranks ? static_cast<int>(number_arg(phase.args, "ranks", 1)) : 1;
  if (ranks <= 1) return {group};
  std::vector<std::string> stems;
  for (int rank = 0; rank < ranks; ++rank) stems.push_back(group + ".r" + std::to_string(rank));
  return stems;
}

std::vector<std::string> case_ids(const PlannedPhase& phase) {
  std::vector<std::string> ids;
  for (const auto& one : phase.cases) ids.push_back(one.id);
  return ids;
}

base::protocol::Transcript transcript_of(const fs::path& file, const PlannedPhase& phase) {
  return base::protocol::read_transcript(read_bytes(file),
                                         {.mode = phase.mode, .cases = case_ids(phase)});
}

void fail(GroupOutcome& outcome, const std::string& cause, const std::string& reason) {
  outcome.status = StepStatus::kFailed;
  outcome.cause = cause;
  outcome.reason = reason;
}

/// The rules of the protocol hold for what the engine itself wrote, too.
void judge_evidence(const fs::path& file, const PlannedPhase& phase, GroupOutcome& outcome) {
  const auto transcript = transcript_of(file, phase);
  outcome.lines = static_cast<int64_t>(transcript.lines.size());
  outcome.status = StepStatus::kCompleted;
  if (!transcript.violations.empty())
    fail(outcome, transcript.violations.front().name, transcript.violations.front().detail);
}

/// False where a case ended otherwise, as those do that an interrupted builtin leaves.
bool all_cases_ended_ok(const fs::path& file, const PlannedPhase& phase) {
  return std::ranges::all_of(transcript_of(file, phase).ended,
                             [](const auto& one) { return one.second.status == "ok"; });
}

/// A file that a process named as evidence is in `out` when it ends.
void judge_artifacts(const fs::path& file, const fs::path& out, const PlannedPhase& phase,
                     GroupOutcome& outcome) {
  if (outcome.status != StepStatus::kCompleted) return;
  for (const auto& line : transcript_of(file, phase).lines) {
    const auto* artifact = std::get_if<base::protocol::Artifact>(&line.message);
    if (artifact == nullptr) continue;
    const fs::path path(artifact->path);
    const bool inside = path.is_relative() && std::ranges::find(path, "..") == path.end();
    if (inside && fs::is_regular_file(fs::symlink_status(out / path))) continue;
    fail(outcome, "MISSING_ARTIFACT",
         "it named " + in_quotes(artifact->path) + " as an artifact, which is no file in out/");
    return;
  }
}

/// A program that fails although no test of its report failed: the cause is unknown.
void judge_test_exit(const fs::path& file, const PlannedPhase& phase, GroupOutcome& outcome) {
  if (outcome.status != StepStatus::kCompleted || outcome.exit_code == 0) return;
  for (const auto& line : transcript_of(file, phase).lines)
    if (const auto* check = std::get_if<base::protocol::Check>(&line.message); check && !check->ok)
      return;
  fail(outcome, "EXIT_CODE",
       "exit status " + std::to_string(outcome.exit_code) +
           ", and no test of its report failed; see " + outcome.group + ".err");
}

/// How the two kinds of test programs are asked.
struct TestProgram {
  std::vector<std::string> list, run;
  std::vector<std::string> (*parse_list)(std::string_view);
  IngestVerdict (*ingest)(std::string_view, const std::vector<std::string>&, const IngestTarget&,
                          base::protocol::Emitter&);
};

TestProgram test_program(const PlannedPhase& phase, const fs::path& report) {
  if (phase.program == "nsa-tests")
    return {{"--gtest_list_tests", "--gtest_filter=" + phase.filter},
            {"--gtest_filter=" + phase.filter, "--gtest_output=json:" + report.string()},
            parse_gtest_list,
            ingest_gtest};
  const auto repetitions = phase.args.value("repetitions", int64_t{1});
  return {{"--benchmark_list_tests=true", "--benchmark_filter=" + phase.filter},
          {"--benchmark_filter=" + phase.filter, "--benchmark_out=" + report.string(),
           "--benchmark_out_format=json", "--benchmark_repetitions=" + std::to_string(repetitions)},
          parse_benchmark_list,
          ingest_benchmark};
}

}  // namespace

GroupOutcome GroupRunner::run(const PlannedPhase& phase, const PlannedGroup& group) const {
  std::error_code error;
  fs::create_directories(dir_.phase_dir(phase.id) / "out", error);
  if (error)
    throw Error("cannot create " + (dir_.phase_dir(phase.id) / "out").string() + ": " +
                error.message());
  if (phase.program == "builtin") return run_builtin(phase, group);
  if (options_.resident && phase.program == "nsa-worker") return run_resident(phase, group);
  GroupOutcome outcome;
  outcome.group = group.id;
  if (const std::string other = other_program(phase.program); !other.empty()) {
    fail(outcome, "OTHER_PROGRAM", other);
    return outcome;
  }
  const bool tests = phase.program == "nsa-tests" || phase.program == "nsa-bench";
  outcome = tests ? run_test_program(phase, group) : run_worker_program(phase, group);
  judge_libraries(outcome);
  return outcome;
}

/// Why a program is not that of the build; empty when it is. It is looked at before every start.
std::string GroupRunner::other_program(const std::string& program) const {
  const fs::path file = options_.bin_dir / program;
  if (!options_.programs || !fs::exists(file)) return "";  // NOT_STARTED has its own words
  const auto known = options_.programs->find(program);
  if (known == options_.programs->end()) return program + " is not named in build_id.json";
  return known->second == sha256_file(file)
             ? ""
             : program + " is not the program of build_id.json: its sha256 differs";
}

/// A process that mapped a library of the product from elsewhere measured another build.
void GroupRunner::judge_libraries(GroupOutcome& outcome) const {
  if (!options_.programs) return;
  for (const LoadedLibrary& library : outcome.libraries) {
    const auto is_this = [&](const auto& one) { return one.second == library.sha256; };
    if (!base::is_product_library(library.name) || std::ranges::any_of(*options_.programs, is_this))
      continue;
    return fail(outcome, "OTHER_PROGRAM",
                "it mapped a " + in_quotes(library.name) +
                    " that is not of the build: its sha256 is not in build_id.json");
  }
}

bool GroupRunner::evidence_holds(const PlannedPhase& phase, const std::string& group) const {
  for (const std::string& stem : evidence_stems(phase, group)) {
    const auto file = dir_.phase_dir(phase.id) / (stem + ".jsonl");
    if (!fs::exists(file) || !transcript_of(file, phase).violations.empty()) return false;
  }
  return true;
}

GroupOutcome GroupRunner::ended_before(const PlannedPhase& phase, const std::string& group,
                                       double seconds) const {
  GroupOutcome outcome;
  outcome.group = group;
  outcome.seconds = seconds;
  outcome.notes = {"the engine was killed before it saw this process end"};
  const auto file = dir_.phase_dir(phase.id) / (evidence_stems(phase, group).front() + ".jsonl");
  judge_evidence(file, phase, outcome);
  judge_artifacts(file, dir_.phase_dir(phase.id) / "out", phase, outcome);
  return outcome;
}

GroupRunner::Undecided GroupRunner::undecided(const PlannedPhase& phase,
                                              const std::string& group) const {
  constexpr std::string_view kNoContrast = "NO_CONTRAST: ";
  Undecided found;
  const auto stem = evidence_stems(phase, group).front();  // rank 0 stands for all
  for (const auto& [id, end] :
       transcript_of(dir_.phase_dir(phase.id) / (stem + ".jsonl"), phase).ended) {
    if (end.status == "failed" && end.reason.starts_with(kNoContrast))
      found.no_contrast = id + ": " + end.reason.substr(kNoContrast.size());
    if (end.status == "deferred" || end.status == "partial")
      found.ends.push_back(end);
    else
      ++found.others;
  }
  return found;
}

base::protocol::CaseIn GroupRunner::case_in(const PlannedPhase& phase,
                                            const PlannedGroup& group) const {
  base::protocol::CaseIn in{.phase = phase.id,
                            .kind = phase.kind,
                            .group = group.id,
                            .mode = phase.mode,
                            .device = phase.device,
                            .seed = group.seed,
                            .args = phase.args};
  for (const auto& one : phase.cases) in.cases.push_back({.id = one.id, .args = one.args});
  in.switches = phase.switches;
  in.out = dir_.phase_dir(phase.id) / "out";
  return in;
}

WorkerSpec GroupRunner::worker_spec(const PlannedPhase& phase, const std::string& group,
                                    const std::string& stem) const {
  const auto folder = dir_.phase_dir(phase.id);
  WorkerSpec spec;
  spec.group = group;
  spec.argv = {(options_.bin_dir / phase.program).string()};
  spec.env = phase.switches;
  spec.marker = dir_.marker(phase.id, group);
  spec.out = folder / (stem + ".out");
  spec.err = folder / (stem + ".err");
  spec.autopsy = folder / (stem + ".autopsy.json");
  // A program without a build id cannot be shown to be of this build.
  spec.want = {
      .mode = phase.mode, .cases = case_ids(phase), .asks_build_id = !options_.build_id.empty()};
  return spec;
}

WatchPolicy GroupRunner::policy(const PlannedPhase& phase) const {
  WatchPolicy policy = options_.limits;
  policy.timeout_s = phase.timeout_s;
  policy.first_step_s = number_arg(phase.args, "first_step_s", policy.first_step_s);
  policy.rate_floor = number_arg(phase.args, "rate_floor", 0);
  return policy;
}

WatchHooks GroupRunner::hooks(const PlannedPhase& phase, const std::string& group) const {
  return {.on_beat = [this, &phase, group](
                         const base::protocol::Beat& beat,
                         double eta_s) { observer_.on_beat(phase, group, beat, eta_s); },
          .stop_signal = InterruptGuard::signal,
          .device_facts = options_.device_facts,
          .device_held = options_.device_held};
}

GroupOutcome GroupRunner::run_worker_program(const PlannedPhase& phase,
                                             const PlannedGroup& group) const {
  std::vector<WorkerSpec> ranks;
  const auto stems = evidence_stems(phase, group.id);
  const int world = static_cast<int>(stems.size());
  const int port = world > 1 ? base::protocol::free_port() : 0;
  if (world > 1 && port == 0)
    throw Error("no free TCP port on this machine: " + std::generic_category().message(errno));
  if (phase.launcher == "srun" && options_.nodes.empty())
    throw Error("phase " + phase.id + " is to be started by srun, outside of an allocation");
  for (int rank = 0; rank < world; ++rank) {
    auto& spec = ranks.emplace_back(worker_spec(phase, group.id, stems[static_cast<size_t>(rank)]));
    if (phase.program == "nsa-train") spec.argv.emplace_back("--worker");
    spec.input = base::protocol::print_case(case_in(phase, group)) + "\n";
    spec.result = dir_.phase_dir(phase.id) / (stems[static_cast<size_t>(rank)] + ".jsonl");
    spec.stages =
        dir_.phase_dir(phase.id) / "out" / ("last_stage.rank" + std::to_string(rank) + ".bin");
    if (world == 1) break;
    spec.env.merge(base::protocol::rank_variables(rank, world, port));
    if (phase.launcher == "srun") start_by_srun(spec, place_of_rank(options_.nodes, rank, world));
    spec.marker += ".r" + std::to_string(rank);  // a rank ends without its neighbours
  }
  const fs::path out = dir_.phase_dir(phase.id) / "out";
  auto outcome = world == 1 ? run_worker(ranks.front(), policy(phase), hooks(phase, group.id))
                            : run_ranks(ranks, policy(phase), hooks(phase, group.id), out);
  for (const WorkerSpec& rank : ranks) judge_artifacts(rank.result, out, phase, outcome);
  return outcome;
}

GroupOutcome GroupRunner::run_builtin(const PlannedPhase& phase, const PlannedGroup& group) const {
  const auto start = std::chrono::steady_clock::now();
  const auto file = dir_.phase_dir(phase.id) / (group.id + ".jsonl");
  GroupOutcome outcome;
  outcome.group = group.id;
  const auto builtin = builtins_.find(phase.kind);
  if (builtin == builtins_.end()) {
    fail(outcome, "NOT_STARTED", "this engine has no builtin '" + phase.kind + "'");
    return outcome;
  }
  try {
    base::protocol::Emitter emitter(file);
    emitter.hello({.program = "builtin:" + phase.kind, .build_id = options_.build_id});
    builtin->second({case_in(phase, group), dir_.root(), InterruptGuard::signal}, emitter);
    emitter.done();
    judge_evidence(file, phase, outcome);
  } catch (const std::exception& e) {
    fail(outcome, "BUILTIN_ERROR", e.what());
  }
  const bool whole = outcome.status == StepStatus::kCompleted && all_cases_ended_ok(file, phase);
  if (InterruptGuard::signal() != 0 && !whole)
    fail(outcome, "INTERRUPTED", "interrupted by " + signal_name(InterruptGuard::signal()));
  outcome.seconds = seconds_since(start);
  return outcome;
}

GroupOutcome GroupRunner::run_resident(const PlannedPhase& phase, const PlannedGroup& group) const {
  const auto start = std::chrono::steady_clock::now();
  const auto file = dir_.phase_dir(phase.id) / (group.id + ".jsonl");
  GroupOutcome outcome;
  outcome.group = group.id;
  options_.resident(base::protocol::print_case(case_in(phase, group)), file);
  judge_evidence(file, phase, outcome);
  outcome.seconds = seconds_since(start);
  return outcome;
}

GroupOutcome GroupRunner::run_test_program(const PlannedPhase& phase,
                                           const PlannedGroup& group) const {
  const auto folder = dir_.phase_dir(phase.id);
  const auto report = folder / (group.id + ".report.json"), result = folder / (group.id + ".jsonl");
  auto program = test_program(phase, report);
  if (phase.device != "cpu") program.run.insert(program.run.begin(), {"--device", phase.device});
  const auto start = [&](const std::string& stem, const std::vector<std::string>& args) {
    auto spec = worker_spec(phase, group.id, stem);
    spec.argv.insert(spec.argv.end(), args.begin(), args.end());
    return run_worker(spec, policy(phase), hooks(phase, group.id));
  };
  auto outcome = start(group.id + ".list", program.list);
  if (outcome.status != StepStatus::kCompleted) return outcome;
  const auto planned = program.parse_list(read_bytes(folder / (group.id + ".list.out")));
  outcome = start(group.id, program.run);
  if (outcome.status != StepStatus::kCompleted) return outcome;
  if (!fs::exists(report)) {
    fail(outcome, "BAD_TEST_JSON",
         "exit status " + std::to_string(outcome.exit_code) + " without a report; see " + group.id +
             ".err");
    return outcome;
  }
  base::protocol::Emitter emitter(result);
  const IngestTarget target{
      .hello = {.program = phase.program, .build_id = options_.build_id, .device = phase.device},
      .cases = case_ids(phase)};
  const auto verdict = program.ingest(read_bytes(report), planned, target, emitter);
  if (!verdict.cause.empty())
    fail(outcome, verdict.cause, verdict.reason);
  else
    judge_evidence(result, phase, outcome);
  judge_test_exit(result, phase, outcome);
  return outcome;
}

}  // namespace harness
