#include "suites/phases/profiles/recording_cost.h"

#include <algorithm>
#include <string>
#include <vector>

#include "suites/instrument/dilation.h"

namespace suites {
namespace {

struct RecordingArm {
  std::string name;
  std::vector<RecordPart> parts;
  std::vector<double> ms = {};
};

std::vector<RecordingArm> recording_arms() {
  using enum RecordPart;
  return {{"nothing, after recording was on", {}},
          {"kernels", {kKernels}},
          {"kernels and calls, by callbacks", {kKernels, kCalls}},
          {"kernels and calls, by CUPTI's records", {kKernels, kRuntimeRecords, kDriverRecords}},
          {"kernels and copies", {kKernels, kCopies}},
          {"kernels and event waits", {kKernels, kWaits}},
          {"kernels and ranges", {kKernels, kRanges}},
          {"what a trace is made of", kTraceParts}};
}

double timed(ActivityCollector& collector, const std::function<double()>& step,
             const RecordingArm& arm) {
  if (!arm.parts.empty()) collector.start(arm.parts);
  step();
  const double ms = step();
  if (arm.parts.empty()) return ms;
  collector.stop();
  collector.clear();
  return ms;
}

}  // namespace

nlohmann::json recording_cost_rows(ActivityCollector& collector,
                                   const std::function<double()>& step, double untouched_ms,
                                   int64_t rounds) {
  std::vector<RecordingArm> all = recording_arms();
  for (int64_t round = 0; round < rounds; ++round) {
    for (RecordingArm& arm : all) arm.ms.push_back(timed(collector, step, arm));
    std::reverse(all.begin(), all.end());
  }
  if (rounds % 2 == 1) std::reverse(all.begin(), all.end());
  nlohmann::json rows = nlohmann::json::array();
  rows.push_back({"nothing, before recording was ever on", untouched_ms, 0});
  for (const RecordingArm& arm : all) {
    const double ms = median(arm.ms);
    rows.push_back({arm.name, ms, 100 * (ms / untouched_ms - 1)});
  }
  return rows;
}

}  // namespace suites
