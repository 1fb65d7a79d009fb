#include <algorithm>
#include <cmath>

#include "harness/evidence/derive/raw_evidence.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/phases/builtin_phases.h"
#include "harness/schema/error.h"
#include "harness/training_comparison/loss_gap.h"

namespace harness {
namespace {

using nlohmann::json;

/// Heartbeats with which a curve is repeated, so that both are in one plot.
constexpr size_t kRepeatedPoints = 400;

/// The losses that a phase of this run reported. Throws Error when it did not complete.
LossCurve curve_of(const RunFolder& run, const RunFiles& files, const std::string& phase) {
  const auto planned = std::ranges::find(files.plan.phases, phase, &PlannedPhase::id);
  if (planned == files.plan.phases.end() || planned->program != "nsa-train")
    throw Error("args must name two phases of nsa-train, got '" + phase + "'");
  const PhaseEnd end = read_phase_end(run, *planned);
  if (end.status != StepStatus::kCompleted)
    throw Error("phase " + phase + " is " + std::string(enum_name(end.status)));
  LossCurve curve;
  const RawPhase raw = read_raw_phase(run, files, *planned, end);
  if (raw.groups.empty() || !raw.groups.front().unusable.empty())
    throw Error("phase " + phase + " left no usable evidence");
  for (const base::protocol::Beat& beat : raw.groups.front().steps) {
    const auto loss = beat.extra.find("loss");
    if (loss != beat.extra.end() && loss->is_number()) curve[beat.step] = loss->get<double>();
  }
  return curve;
}

/// The curve again, thinned, as a line of its own.
void repeat(const LossCurve& curve, const std::string& name, const std::string& case_id,
            base::protocol::Emitter& emitter) {
  const size_t stride = (curve.size() + kRepeatedPoints - 1) / kRepeatedPoints;
  size_t i = 0;
  for (const auto& [step, loss] : curve) {
    const bool kept = i % stride == 0 || i + 1 == curve.size();
    ++i;
    if (kept)
      emitter.beat({.case_id = case_id,
                    .step = step,
                    .of = curve.rbegin()->first,
                    .at = "step",
                    .extra = {{"line", name}, {"loss", loss}}});
  }
}

void emit(const LossGap& gap, const std::string& id, base::protocol::Emitter& emitter) {
  const auto metric = [&](const char* name, const json& value, const char* unit) {
    emitter.metric({.case_id = id,
                    .name = name,
                    .value = gap.problem.empty() ? value : json(),
                    .unit = unit,
                    .reason = gap.problem});
  };
  metric("gap.steps_count", gap.steps, "count");
  metric("gap.mean_nat", gap.mean_nat, "nat");
  metric("gap.band_lo_nat", gap.lo_nat, "nat");
  metric("gap.band_hi_nat", gap.hi_nat, "nat");
}

}  // namespace

void run_loss_gap(const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = base::protocol::merged_args(call.in, call.in.cases.front());
  const std::string first = args.value("of", ""), second = args.value("against", "");
  const RunFolder run(call.run_dir);
  const RunFiles files = read_run_files(run);
  const LossCurve a = curve_of(run, files, first), b = curve_of(run, files, second);
  repeat(a, first, id, emitter);
  repeat(b, second, id, emitter);
  const LossGap gap = loss_gap(a, b, args.at("tail").get<int64_t>());
  emit(gap, id, emitter);
  if (!gap.problem.empty()) return emitter.fail_case(id, gap.problem);
  emitter.end_case(id);
}

}  // namespace harness
