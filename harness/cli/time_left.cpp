#include "harness/cli/time_left.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/schema/error.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

constexpr size_t kRunsRead = 5;  ///< of the same runbook and hardware: reading shall cost no time

bool runs(const PlannedPhase& phase) {
  return phase.decision == Decision::kRun || phase.decision == Decision::kRunWithDeviation;
}

bool same_work(const PlannedPhase& a, const PlannedPhase& b) {
  const auto cases = [](const PlannedPhase& phase) {
    std::map<std::string, nlohmann::json> all;
    for (const PlannedCase& one : phase.cases) all[one.id] = one.args;
    return all;
  };
  return a.id == b.id && a.run == b.run && a.device == b.device && a.args == b.args &&
         a.switches == b.switches && a.groups.size() == b.groups.size() && cases(a) == cases(b);
}

/// Run folders with results, newest first.
std::vector<fs::path> finished(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto when = fs::last_write_time(entry.path() / "results.json", error);
    if (!error) found.emplace_back(when, entry.path());
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<fs::path> paths;
  for (const auto& [when, path] : found) paths.push_back(path);
  return paths;
}

/// A phase that was retried or stopped is no measure of how long it takes.
std::map<std::string, double> completed_seconds(const Results& results) {
  std::map<std::string, double> seconds;
  for (const PhaseResult& phase : results.phases)
    if (phase.status == StepStatus::kCompleted && phase.attempts == 1 && phase.seconds > 0)
      seconds[phase.name] = phase.seconds;
  return seconds;
}

}  // namespace

std::vector<EarlierRun> earlier_runs(const fs::path& folder, const std::string& runbook,
                                     const std::string& hardware) {
  std::vector<EarlierRun> found;
  for (const fs::path& path : finished(folder)) try {
      if (found.size() == kRunsRead) break;
      const RunFolder run(path);
      const Results results = read_results(run);
      if (results.run.runbook == runbook && hardware_key(results.environment) == hardware)
        found.push_back({read_run_files(run).plan, completed_seconds(results)});
    } catch (const std::exception&) {
      continue;  // only an estimate is the poorer for it
    }
  return found;
}

std::map<std::string, double> measured_seconds(const Plan& plan,
                                               const std::vector<EarlierRun>& earlier) {
  std::map<std::string, double> seconds;
  for (const EarlierRun& run : earlier)
    for (const PlannedPhase& then : run.plan.phases)
      for (const PlannedPhase& now : plan.phases)
        if (const auto took = run.seconds.find(now.id);
            took != run.seconds.end() && same_work(now, then))
          seconds.emplace(now.id, took->second);
  return seconds;
}

TimeLeft::TimeLeft(const Plan& plan, std::map<std::string, double> measured)
    : measured_(std::move(measured)) {
  for (const PlannedPhase& phase : plan.phases) of(phase).all += expected(phase);
  for (Expectation* each : {&before_, &planned_}) each->waiting = each->all;
}

TimeLeft::Expectation& TimeLeft::of(const PlannedPhase& phase) {
  return measured_.contains(phase.id) ? before_ : planned_;
}

double TimeLeft::expected(const PlannedPhase& phase) const {
  if (!runs(phase)) return 0;
  const auto found = measured_.find(phase.id);
  return found == measured_.end() ? 60 * phase.minutes : found->second;
}

void TimeLeft::start(const PlannedPhase& phase) {
  Expectation& one = of(phase);
  one.current = expected(phase);
  one.waiting = std::max(0.0, one.waiting - one.current);
}

void TimeLeft::end(const PlannedPhase& phase, double seconds) {
  Expectation& one = of(phase);
  one.ended += one.current;
  one.took += one.current > 0 ? seconds : 0;
  one.current = 0;
}

/// The first phases are short: they count together with a tenth of the run that goes as expected,
/// so that a second more or less of them does not double the hour that follows.
double TimeLeft::Expectation::pace() const {
  const double prior = 0.1 * all;
  return ended + prior > 0 ? std::clamp((took + prior) / (ended + prior), 0.1, 10.0) : 1.0;
}

double TimeLeft::seconds(double in_phase, double process_left) const {
  double waiting = 0, current = 0;
  for (const Expectation* each : {&before_, &planned_}) {
    waiting += each->pace() * each->waiting;
    if (each->current > 0) current += std::max(0.0, each->pace() * each->current - in_phase);
  }
  return waiting + std::max(current, process_left);
}

std::string about_left(double seconds) {
  if (!(seconds >= 1)) return "";
  if (seconds < 55)
    return fmt::format("about {:.0f} s left", std::max(5.0, 5 * std::round(seconds / 5)));
  const double minutes = std::round(seconds / 60);
  if (minutes < 90) return fmt::format("about {:.0f} min left", minutes);
  return fmt::format("about {:.1f} h left", seconds / 3600);
}

}  // namespace harness::cli
