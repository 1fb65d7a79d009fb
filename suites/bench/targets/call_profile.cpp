#include "suites/bench/targets/call_profile.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <vector>

#include "suites/bench/targets/case_row.h"
#include "suites/bench/targets/target_case.h"
#include "suites/instrument/cupti/activity_collector.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/target_call.h"

namespace suites {
namespace {

namespace trace = harness::trace;

constexpr int kProfiledCalls = 10;

struct Share {
  std::string name;
  int64_t count = 0;
  double us = 0;
};

std::vector<Share> shares_of(const trace::Trace& recorded) {
  std::map<std::string, Share> by_name;
  for (const trace::DeviceWork& work : recorded.work) {
    const std::string name = work.kind == trace::WorkKind::kSet
                                 ? "fill"
                                 : trace::short_name(recorded.name_of(work.name));
    Share& share = by_name[name];
    share.name = name;
    ++share.count;
    share.us += static_cast<double>(work.time.end - work.time.begin) / 1e3;
  }
  std::vector<Share> shares;
  for (const auto& [name, share] : by_name) shares.push_back(share);
  std::sort(shares.begin(), shares.end(),
            [](const Share& a, const Share& b) { return a.us > b.us; });
  return shares;
}

std::string table(const std::string& title, const trace::Trace& recorded) {
  char line[300];
  double total = 0;
  std::string rows;
  for (const Share& share : shares_of(recorded)) {
    std::snprintf(line, sizeof line, "%6.1f x %9.1f us  %s\n",
                  static_cast<double>(share.count) / kProfiledCalls,
                  share.us / static_cast<double>(share.count), share.name.c_str());
    rows += line;
    total += share.us;
  }
  std::snprintf(line, sizeof line, "%s: %.1f us busy, %lld records lost\n", title.c_str(),
                total / kProfiledCalls, static_cast<long long>(recorded.dropped));
  return line + rows;
}

std::string profile_case(ActivityCollector& collector, const TargetCase& one, at::Device device,
                         uint64_t seed) {
  const TargetCall call(one.config, device, seed);
  const at::Tensor o = call.forward_in_training().o, d_o = at::randn_like(o);
  call.backward(o, d_o);
  const auto record = [&](const std::function<void()>& work) {
    synchronize(device);
    collector.clear();
    collector.start({RecordPart::kKernels, RecordPart::kCopies});
    for (int i = 0; i < kProfiledCalls; ++i) work();
    collector.stop();
    return collector.take();
  };
  const trace::Trace forward = record([&] { call.forward_in_training(); });
  const trace::Trace backward = record([&] { call.backward(o, d_o); });
  return table(one.id + " forward", forward) + table(one.id + " backward", backward);
}

/// The tables of a case, or a line with why it could not run.
std::string contained_profile(ActivityCollector& collector, const TargetCase& one,
                              at::Device device, uint64_t seed, int64_t& failed) {
  std::string text;
  const nlohmann::json row = run_case(one.id, one.config, device, [&](nlohmann::json&) {
    text = profile_case(collector, one, device, seed);
  });
  if (row.at("problems").empty()) return text;
  ++failed;
  return one.id + ": not run: " + row.at("problems").at(0).get<std::string>() + "\n";
}

}  // namespace

std::string profile_calls(at::Device device, const std::string& filter, uint64_t seed,
                          int64_t& failed) {
  ActivityCollector collector;
  std::string text;
  for (const TargetCase& one : target_cases())
    if (one.id.find(filter) != std::string::npos)
      text += contained_profile(collector, one, device, seed, failed);
  if (text.empty())
    throw std::invalid_argument("--case " + filter + ": no case has that in its name");
  return text;
}

}  // namespace suites
