#include "harness/engine/engine.h"

#include "harness/engine/inputs.h"
#include "harness/engine/interrupt.h"
#include "harness/engine/phase_runner.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

/// Processes that an engine which was killed left behind: they would disturb every measurement.
void end_leftovers(const RunDir& dir, double wait_s, Observer& observer) {
  const GroupKey key{.session = 0, .marker = dir.marker_prefix(), .prefix = true, .not_before = 0};
  for (const auto& process : find_group(key))
    observer.on_note("killed " + std::to_string(process.pid) + " " + process.name +
                     ", left by an earlier start");
  for (const auto& process : kill_group(key, wait_s))
    throw Error("process " + std::to_string(process.pid) + " " + process.name +
                " of an earlier start cannot be killed (state " + process.state +
                "); restart the machine");
}

}  // namespace

RunReport run(const RunOptions& options, const Runbook& runbook, const Kinds& kinds,
              const Plan& plan, const Builtins& builtins, Observer& observer) {
  const InterruptGuard interrupts;
  RunDir dir(options.out, options.resume);
  dir.begin(options, runbook, kinds, plan);
  if (options.resume) end_leftovers(dir, options.limits.proof_s, observer);
  Inputs inputs(dir.root());
  const GroupRunner groups(options, dir, builtins, observer);
  const PhaseRunner phases(options, dir, groups, observer);
  RunReport report;
  std::map<std::string, PhaseRecord> ended;
  for (const auto& phase : plan.phases) {
    report.signal = InterruptGuard::signal();
    if (report.signal != 0) return report;
    observer.on_phase_start(phase, report.phases.size() + 1, plan.phases.size());
    const auto record = phases.run(phase, ended);
    for (const std::string& file : inputs.restore())
      observer.on_note(file + " was changed while phase " + phase.id +
                       " ran; what was planned is put back, the evidence does not verify");
    if (record.cause == "INTERRUPTED") break;
    observer.on_phase_end(phase, record);
    ended.emplace(phase.id, record);
    report.phases.push_back(record);
  }
  report.signal = InterruptGuard::signal();
  return report;
}

}  // namespace harness
