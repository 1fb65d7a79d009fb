// P13, P19: injected in runs of nsa-train that are compared with each other.
#include <map>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/phases/worker_call.h"
#include "harness/schema/error.h"
#include "harness/training_analysis/counterfactual.h"

namespace harness::injection {
namespace {

using nlohmann::json;

json tiny() {
  return {{"model", "tiny_cpu"}, {"data", "synthetic"}, {"batch", 1}, {"seq_len", 64}};
}
json good() { return {{"batch", 8}, {"dtype", "fp32"}}; }

CounterfactualResult explain_gap(const SelftestSetup& setup, const json& settings) {
  CounterfactualPlan plan;
  plan.program = setup.bin_dir / "nsa-train";
  plan.settings.args = tiny();
  plan.settings.args.update(settings);
  plan.recommended = good();
  plan.device = setup.device;
  plan.seed = setup.seed;
  plan.target_tok_s = 1e6;
  return run_counterfactual(plan, "gap", nullptr);
}

using Losses = std::map<int64_t, json>;  ///< by step

/// Losses of one training process, exactly as it reported them.
Losses train(const SelftestSetup& setup, const json& args) {
  WorkerCall call{.program = setup.bin_dir / "nsa-train-faulty", .kind = "nsa-train"};
  call.flags = {"--worker"};
  call.device = setup.device;
  call.seed = setup.seed;
  call.args = tiny();
  call.args.update({{"steps", 8}, {"warmup", 2}});
  call.args.update(args);
  const WorkerAnswer answer = call_worker(call);
  if (!answer.problem.empty()) throw Error("training: " + answer.problem);
  Losses losses;
  for (const auto& line : answer.transcript.lines)
    if (const auto* beat = std::get_if<base::protocol::Beat>(&line.message);
        beat != nullptr && beat->extra.contains("loss"))
      losses[beat->step] = beat->extra["loss"];
  return losses;
}

/// The first step whose loss is not that of the uninterrupted run; what was seen, in words.
Injected compare_resumed(const SelftestSetup& setup, const std::string& fault) {
  const TempDir dir;
  const json keep = {{"checkpoints", (dir / "checkpoints").string()}};
  json first = keep, second = keep;
  first["slice_steps"] = 4;
  second["resume"] = true;
  if (!fault.empty()) second["fault"] = fault;
  const Losses whole = train(setup, json::object());
  Losses resumed = train(setup, first);
  const size_t before = resumed.size();
  for (const auto& [step, loss] : train(setup, second)) resumed[step] = loss;
  if (whole.size() != 8 || before >= whole.size() || resumed.size() != whole.size())
    throw Error("the runs have " + std::to_string(whole.size()) + ", " + std::to_string(before) +
                " and " + std::to_string(resumed.size()) + " steps: nothing was resumed");
  for (const auto& [step, loss] : whole)
    if (resumed[step] != loss)
      return {true, "RESUME_DIFFERS: step " + std::to_string(step) + " has loss " +
                        resumed[step].dump() + ", uninterrupted " + loss.dump()};
  return {false, "the resumed run is bit-equal to the uninterrupted one"};
}

}  // namespace

/// Batch and precision both wrong: each is named with its own gain.
Injected inject_wrong_settings(const SelftestSetup& setup) {
  const CounterfactualResult result = explain_gap(setup, {{"dtype", "fp64"}});
  bool batch = false, precision = false;
  for (const FactorGain& factor : result.gap.factors) {
    batch |= factor.name == "batch" && factor.lo > 1;
    precision |= factor.name == "dtype" && factor.gain > 0;
  }
  return {batch && precision, "GAP_ATTRIBUTED: " + gap_text(result)};
}

Injected control_good_settings(const SelftestSetup& setup) {
  const CounterfactualResult result = explain_gap(setup, good());
  return {result.gap.factors.empty() && result.problem.find("in force") != std::string::npos,
          gap_text(result)};
}

Injected inject_lost_position(const SelftestSetup& setup) { return compare_resumed(setup, "P19"); }

Injected control_exact_resume(const SelftestSetup& setup) {
  Injected found = compare_resumed(setup, "");
  found.as_wanted = !found.as_wanted;
  return found;
}

}  // namespace harness::injection
