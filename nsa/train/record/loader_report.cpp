#include "nsa/train/record/loader_report.h"

#include <cstdio>

namespace nsa::train {
namespace {

constexpr double kStallBound = 0.25;    ///< share of a step that its batch may keep it waiting
constexpr double kFirstBatchMs = 1000;  ///< that the first batch may let wait after the warm-up
constexpr double kStallMs = 10;         ///< below it, on average, the scheduler is all there is
constexpr size_t kStallSteps = 5;       ///< too few steps for a share below it

/// Share of the steps' time spent on their batches; the first step apart.
double stall_ratio(const std::vector<StepRecord>& trace) {
  double load = 0, all = 0;
  for (size_t i = 1; i < trace.size(); ++i) load += trace[i].load_ms, all += trace[i].step_ms;
  return all > 0 ? load / all : 0;
}

double mean_load_ms(const std::vector<StepRecord>& trace) {
  double load = 0;
  for (size_t i = 1; i < trace.size(); ++i) load += trace[i].load_ms;
  return trace.size() > 1 ? load / static_cast<double>(trace.size() - 1) : 0;
}

std::string describe(const LoaderTelemetry& loader, double ratio) {
  char text[240];
  std::snprintf(text, sizeof text,
                "warm-up %s: %lld batches in %.3f s%s; the first batch let wait %.1f ms, the later "
                "ones took %.1f %% of their steps",
                loader.warmup_enabled ? "on" : "off", static_cast<long long>(loader.warmup_batches),
                loader.warmup_s, loader.warmup_timed_out ? " (timed out)" : "",
                loader.first_batch_ms, 100 * ratio);
  return text;
}

}  // namespace

std::vector<Figure> loader_figures(const LoaderTelemetry& loader,
                                   const std::vector<StepRecord>& trace) {
  const std::pair<const char*, double> values[] = {
      {"loader.warmup_enabled_bool", loader.warmup_enabled ? 1 : 0},
      {"loader.warmup_batches_count", static_cast<double>(loader.warmup_batches)},
      {"loader.warmup_s", loader.warmup_s},
      {"loader.start_ms", loader.start_ms},
      {"loader.first_batch_ms", loader.first_batch_ms},
      {"loader.overlap_count", static_cast<double>(loader.overlapping_reads)},
      {"loader.stall_ratio", stall_ratio(trace)}};
  std::vector<Figure> figures;
  for (const auto& [name, value] : values) {
    const std::string text = name;
    figures.push_back({text, text.substr(text.rfind('_') + 1), value, ""});
    if (loader.batches > 0) continue;
    figures.back().value.reset();
    figures.back().reason = "no batch was read";
  }
  return figures;
}

Check check_loader(const LoaderTelemetry& loader, const std::vector<StepRecord>& trace) {
  const double ratio = trace.size() >= kStallSteps ? stall_ratio(trace) : 0;
  const bool stalls = ratio > kStallBound && mean_load_ms(trace) > kStallMs;
  const bool ok = !stalls && loader.first_batch_ms <= kFirstBatchMs;
  return {"loader_stall", "LOADER_STALL", describe(loader, ratio), ok, ratio, kStallBound};
}

}  // namespace nsa::train
