#include "suites/phases/recording_cost.h"

#include <algorithm>
#include <string>
#include <vector>

namespace suites {
namespace {

struct Arm {
  std::string name;
  std::vector<RecordPart> parts;
  std::vector<double> ms = {};
};

std::vector<Arm> arms() {
  using enum RecordPart;
  return {{"nothing, after recording was on", {}},
          {"kernels", {kKernels}},
          {"kernels and runtime calls", {kKernels, kRuntime}},
          {"kernels and driver calls", {kKernels, kDriver}},
          {"kernels and copies", {kKernels, kCopies}},
          {"kernels and event waits", {kKernels, kWaits}},
          {"kernels and ranges", {kKernels, kRanges}},
          {"everything", kAllParts}};
}

double timed(ActivityCollector& collector, const std::function<double()>& step, const Arm& arm) {
  if (!arm.parts.empty()) collector.start(arm.parts);
  step();
  const double ms = step();
  if (arm.parts.empty()) return ms;
  collector.stop();
  collector.clear();
  return ms;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

nlohmann::json recording_cost_rows(ActivityCollector& collector,
                                   const std::function<double()>& step, double untouched_ms,
                                   int64_t rounds) {
  std::vector<Arm> all = arms();
  for (int64_t round = 0; round < rounds; ++round) {
    for (Arm& arm : all) arm.ms.push_back(timed(collector, step, arm));
    std::reverse(all.begin(), all.end());
  }
  if (rounds % 2 == 1) std::reverse(all.begin(), all.end());
  nlohmann::json rows = nlohmann::json::array();
  rows.push_back({"nothing, before recording was ever on", untouched_ms, 0});
  for (const Arm& arm : all) {
    const double ms = median(arm.ms);
    rows.push_back({arm.name, ms, 100 * (ms / untouched_ms - 1)});
  }
  return rows;
}

}  // namespace suites
