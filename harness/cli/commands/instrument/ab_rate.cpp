#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "harness/cli/commands/commands.h"
#include "harness/cli/commands/instrument/ab_tally.h"
#include "harness/cli/paths.h"
#include "harness/cli/work.h"
#include "harness/evidence/derive/ab_stages.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/process/elapsed.h"
#include "harness/process/resident_worker.h"
#include "harness/provenance/build/build_id.h"
#include "harness/schema/error.h"

/// `ab-rate`: one A/B phase over and over, by the engine, the looks, the estimators and the verdict
/// of every run; only the processes are parts of one that stays.
namespace harness::cli {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

/// In memory where there is such a folder: every process ends with a flush to disk.
fs::path scratch_parent() {
  const fs::path in_memory = "/dev/shm";
  std::error_code error;
  const bool usable = fs::is_directory(in_memory, error) && ::access(in_memory.c_str(), W_OK) == 0;
  return usable ? in_memory : fs::temp_directory_path();
}

/// The phase that is repeated. Throws ConfigError.
const PlannedPhase& only_phase(const Work& work) {
  if (work.plan.phases.size() != 1 || work.plan.phases.front().program != "nsa-worker")
    throw ConfigError("ab-rate: runbook '" + work.runbook.name +
                      "' must have one phase, of nsa-worker");
  const PlannedPhase& phase = work.plan.phases.front();
  if (phase.decision != Decision::kRun)
    throw ConfigError("ab-rate: phase " + phase.id + " must run here: " + phase.cause + ": " +
                      phase.reason);
  return phase;
}

/// The same work with seeds of its own and another folder.
Work repetition(const Work& work, int64_t number, const fs::path& folder) {
  Work again = work;
  again.run.out = folder;
  again.runbook.seed = work.runbook.seed + number;
  for (PlannedPhase& phase : again.plan.phases) {
    const auto reseed = [&](PlannedGroup& group) {
      group.seed = group_seed(again.runbook.seed, phase.id, group.id);
    };
    std::ranges::for_each(phase.groups, reseed);
    for (PlannedStage& stage : phase.further) std::ranges::for_each(stage.groups, reseed);
  }
  return again;
}

class Counter {
 public:
  Counter(const Options& options, Work work)
      : options_(options),
        work_(std::move(work)),
        phase_(only_phase(work_)),
        worker_(program_dir() / phase_.program, phase_.switches),
        builtins_(builtin_phases({}, configs_dir(options.configs))),
        tally_(header(), options.out) {
    work_.run.bin_dir = program_dir();
    work_.run.asked = asked_groups;
    work_.run.resident = [this](const std::string& line, const fs::path& result) {
      worker_.measure(line, result, phase_.timeout_s);
    };
    if (const auto built = read_build_id(program_dir())) work_.run.build_id = built->id;
  }

  int count() {
    const auto start = Clock::now();
    const int64_t before = tally_.runs();
    int signal = 0;
    while (tally_.runs() < options_.runs && signal == 0 &&
           (options_.seconds <= 0 || seconds_since(start) < options_.seconds)) {
      const auto begin = Clock::now();
      const auto row = one_run(tally_.runs() + 1, signal);
      if (!row) break;
      tally_.add(*row, seconds_since(begin));
      print_progress(seconds_since(start) / static_cast<double>(tally_.runs() - before));
    }
    if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
    fmt::print("{}", options_.json ? tally_.as_json().dump(2) + "\n" : tally_.text());
    return signal == 0 ? 0 : 128 + signal;
  }

 private:
  nlohmann::json header() const {
    return {{"format", "nsa-ab-rate"},       {"version", 1},
            {"runbook", work_.runbook.name}, {"device", phase_.device},
            {"args", phase_.args},           {"hardware", hardware_key(work_.run.environment)},
            {"seed", work_.runbook.seed}};
  }

  /// Nothing when the run was interrupted.
  std::optional<AbRow> one_run(int64_t number, int& signal) {
    const fs::path folder = scratch_.path() / std::to_string(number);
    const Work again = repetition(work_, number, folder);
    const RunReport report =
        run(again.run, again.runbook, again.kinds, again.plan, builtins_, quiet_);
    signal = report.signal;
    if (signal != 0) return std::nullopt;
    AbRow row = row_of(derive(folder), again.runbook.seed);
    fs::remove_all(folder);
    return row;
  }

  void print_progress(double seconds_each) const {
    const int64_t done = tally_.runs();
    const double left = seconds_each * static_cast<double>(options_.runs - done);
    const double in_time = options_.seconds > 0 ? options_.seconds : left;
    const std::string line =
        fmt::format("ab-rate {}/{}: {}, {:.2f} s a run, {:.0f} s left", done, options_.runs,
                    tally_.short_text(), seconds_each, std::min(left, in_time));
    constexpr int64_t kRunsALine = 20;
    if (::isatty(STDERR_FILENO) == 1)
      fmt::print(stderr, "\r\033[K{}", line);
    else if (done % kRunsALine == 0)
      fmt::print(stderr, "{}\n", line);
  }

  const Options& options_;
  Work work_;
  const PlannedPhase& phase_;
  ResidentWorker worker_;
  const Builtins builtins_;
  AbTally tally_;
  const TempDir scratch_{scratch_parent()};
  Observer quiet_;
};

}  // namespace

int ab_rate_command(const Options& options) {
  if (!options.torch.empty()) setenv("LD_LIBRARY_PATH", options.torch.c_str(), 1);
  Options planned = options;
  planned.out = "(ab-rate)";  // every run has a folder of its own
  return Counter(options, new_work(planned)).count();
}

}  // namespace harness::cli
