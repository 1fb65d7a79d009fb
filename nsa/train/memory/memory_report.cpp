#include "nsa/train/memory/memory_report.h"

#include <algorithm>
#include <cstdio>

namespace nsa::train {
namespace {

constexpr size_t kShownParts = 4;

std::string number(double mib) {
  char text[32];
  std::snprintf(text, sizeof text, mib < 10 ? "%.2f" : "%.0f", mib);
  return text;
}

std::string largest_parts(const MemoryPlan& plan) {
  std::vector<MemoryPart> parts = plan.parts;
  std::ranges::stable_sort(parts, std::ranges::greater(), &MemoryPart::mib);
  std::string text;
  for (size_t i = 0; i < std::min(kShownParts, parts.size()); ++i)
    text += (i > 0 ? ", " : "") + parts[i].name + " " + number(parts[i].mib);
  return text;
}

std::string failure_text(const AllocationFailure& failure) {
  std::string text = "measured: " + number(failure.in_use_mib) + " MiB in use";
  if (failure.capacity_mib > 0) text += " of " + number(failure.capacity_mib);
  text += " when " + number(failure.asked_mib) + " MiB more were asked for; largest allocations:";
  for (const double mib : failure.largest_mib) text += " " + number(mib);
  return text + (failure.largest_mib.empty() ? " none" : " MiB");
}

std::string remedy(const ModelConfig& model, const StepShape& shape, double predicted_mib,
                   const std::optional<AllocationFailure>& failure) {
  if (!failure || failure->capacity_mib <= 0)
    return "use activation_checkpointing=true, a smaller batch with more accum, or a smaller "
           "seq_len";
  // Measured before the step was complete: the formula is short by this factor at least.
  const double factor =
      std::max(1.0, (failure->in_use_mib + failure->asked_mib) / std::max(1e-9, predicted_mib));
  const FittingChange change = fitting_change(model, shape, failure->capacity_mib, factor);
  if (change.text.empty())
    return "no change of batch, checkpointing, shard or seq_len is predicted to fit";
  return change.text + " is predicted to fit with " + number(change.predicted_mib) + " of " +
         number(failure->capacity_mib) + " MiB";
}

}  // namespace

Finding oom_finding(const ModelConfig& model, const StepShape& shape,
                    const std::optional<AllocationFailure>& failure, const std::string& message) {
  const MemoryPlan plan = plan_memory(model, shape);
  const double predicted = plan.total_mib();
  return {"OOM",
          "predicted: " + number(predicted) + " MiB (" + largest_parts(plan) + "); " +
              (failure ? failure_text(*failure) : message),
          "memory.predicted_mib", "the step needs more memory than the device has",
          remedy(model, shape, predicted, failure)};
}

std::vector<Figure> memory_figures(const MemoryPlan& plan, double peak_mib,
                                   const std::string& reason) {
  std::vector<Figure> figures;
  const auto add = [&](const char* name, const char* unit, bool known, double value) {
    figures.push_back({name, unit, known ? std::optional(value) : std::nullopt, reason});
  };
  const double predicted = plan.total_mib();
  add("memory.predicted_mib", "mib", predicted > 0, predicted);
  add("memory.tensors_peak_mib", "mib", peak_mib > 0, peak_mib);
  add("memory.unpredicted_ratio", "ratio", predicted > 0 && peak_mib > 0, peak_mib / predicted);
  return figures;
}

}  // namespace nsa::train
