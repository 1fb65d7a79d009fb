// P08: names that do not exist.
#include <nlohmann/json.hpp>

#include "harness/fault_injection/faults/faults.h"
#include "harness/phases/worker_call.h"
#include "harness/runbook/runbook.h"
#include "harness/schema/error.h"
#include "harness/schema/read.h"

namespace harness::injection {

static std::string runbook_text(const std::string& key) {
  return R"({"schema": "nsa-runbook/1", "name": "injected", "title": "t", "phases": [{"id": "a", "run": "nsa-train", ")" +
         key + R"(": 5}]})";
}

/// The error with which the worker refuses a switch before anything runs; empty when it does not.
static std::string refusal(WorkerCall call, const std::string& name) {
  call.env = {{name, "7"}};
  const WorkerAnswer answer = call_worker(call);
  const bool names_it = answer.log.find("CONFIG_ERROR") != std::string::npos ||
                        answer.log.find(name + " is ignored by") != std::string::npos;
  const bool refused = answer.exit == 2 && !answer.reported_anything && names_it;
  return refused ? answer.log.substr(0, 160) : "";
}

/// A misspelt key of a runbook, a misspelt switch, and a switch that the program called ignores:
/// each must stop everything before it runs.
Injected inject_unknown_names(const SelftestSetup& setup) {
  std::string reader;
  try {
    read_json<Runbook>(runbook_text("timout_s"), "injected.json");
  } catch (const ConfigError& e) {
    reader = e.what();
  }
  const WorkerCall worker{.program = setup.bin_dir / "nsa-worker", .kind = "gate_health"};
  WorkerCall alone{.program = setup.bin_dir / "nsa-train", .kind = "nsa-train"};
  alone.flags = {"--worker"};
  const std::string unknown = refusal(worker, "NSA_SEL_RANGES_V3");
  const std::string dead = refusal(alone, "NSA_DDP_BUCKET_MB");  // one rank sends no gradients
  const bool key =
      reader.find("timout_s") != std::string::npos && reader.find("timeout_s") != std::string::npos;
  const bool named = unknown.find("NSA_SEL_RANGES_V2") != std::string::npos &&
                     dead.find("NSA_DDP_BUCKET_MB") != std::string::npos;
  return {key && named, "runbook: " + (reader.empty() ? "accepted" : reader) +
                            "; unknown switch: " + (unknown.empty() ? "accepted" : unknown) +
                            "; dead switch: " + (dead.empty() ? "accepted" : dead)};
}

Injected control_known_names(const SelftestSetup& setup) {
  try {
    read_json<Runbook>(runbook_text("timeout_s"), "injected.json");
  } catch (const ConfigError& e) {
    return {false, e.what()};
  }
  WorkerCall call{.program = setup.bin_dir / "nsa-worker", .kind = "gate_health"};
  call.args = {{"layers", 1}, {"dk", 16}, {"tokens", 16}};
  call.env = {{"NSA_SEL_RANGES_V2", "1"}};
  const WorkerAnswer answer = call_worker(call);
  return {answer.problem.empty() && answer.exit == 0,
          answer.problem.empty() ? "both accepted" : answer.problem};
}

}  // namespace harness::injection
