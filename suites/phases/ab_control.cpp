// A/B of a function against itself: what the procedure shows where nothing differs, and whether it
// sees a planted slow-down.
#include <ATen/ATen.h>

#include <cmath>

#include "suites/faults/faults.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/phase.h"
#include "suites/phases/rounds.h"

namespace suites {
namespace {

/// P28: the second arm does this much more work, in percent of its calls.
constexpr int64_t kSlowerCpuPct = 15, kSlowerGpuPct = 3;
constexpr int64_t kHundred = 100;

int64_t planted_pct(const PhaseCase& one) {
  const std::string fault = one.args.get_text("fault", "");
  if (fault.empty()) return one.args.get_int("slowdown_pct", 0, 0);
  if (fault != "P28")
    throw ConfigError("args.fault of ab_control must be P28, got '" + fault + "'");
  return one.device.is_cpu() ? kSlowerCpuPct : kSlowerGpuPct;
}

}  // namespace

std::string run_ab_control(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of ab_control must be time, got '" + one.in.mode + "'");
  const int64_t tokens = one.args.get_int("S", 64, 1), width = one.args.get_int("K", 8, 1);
  const int64_t block = one.args.get_int("lsel", 16, 1);
  at::Generator g = at::detail::createCPUGenerator(one.seed());
  const at::Tensor ids = std::get<0>(at::randint(0, std::max(width, (tokens + block - 1) / block),
                                                 {one.args.get_int("B", 1, 1), tokens,
                                                  one.args.get_int("Hkv", 2, 1), width},
                                                 g, at::kLong)
                                         .sort(-1))
                             .to(at::kInt)
                             .to(one.device);
  const at::Tensor t = at::arange(tokens, at::kLong).unsqueeze(0).to(one.device);
  const auto convert = [&] { nsa::block_ranges(nsa::RangesVersion::kV2, ids, t, block); };
  EventTimer timer(one.device);
  // Whole hundreds of calls, so that a percentage of them is a whole number of calls.
  const int64_t hundreds =
      (calls_per_sample(timer, convert, kMinSampleMs) + kHundred - 1) / kHundred;
  const auto work = [&](int64_t pct) {
    return [&convert, calls = hundreds * (kHundred + pct)] {
      for (int64_t i = 0; i < calls; ++i) convert();
    };
  };
  const std::vector<TimedSeries> series = {
      {"base", work(0), 1}, {"base.aa", work(0), 1}, {"same", work(planted_pct(one)), 1}};
  int64_t step = 0;
  const int64_t rounds = one.args.get_int("rounds", 20, 1);
  time_rounds(one, series, rounds, step, rounds);
  return "";
}

}  // namespace suites
