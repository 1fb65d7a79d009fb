// A/B of a function against itself: what the procedure shows where nothing differs, and whether it
// sees an injected slow-down.
#include <ATen/ATen.h>

#include <cmath>

#include "suites/faults/faults.h"
#include "suites/instrument/event_timer.h"
#include "suites/phases/phase.h"
#include "suites/phases/timing/rounds.h"

namespace suites {
namespace {

/// P28: the second arm does this much more work, in percent of its calls.
constexpr int64_t kSlowerCpuPct = 15, kSlowerGpuPct = 3;
constexpr int64_t kPercent = 100;
/// An addition to so many elements takes 50 to 100 us: on a GPU more than its cache holds.
constexpr int64_t kElementsCpu = int64_t{1} << 18, kElementsGpu = int64_t{48} << 20;

/// A series whose work is `pct` percent more than that of the arm it is compared with.
using SeriesOf = std::function<TimedSeries(const std::string& name, int64_t pct)>;

int64_t injected_pct(const PhaseCase& one) {
  const std::string fault = one.args.get_text("fault", "");
  if (fault.empty()) return one.args.get_int("slowdown_pct", 0, 0);
  if (fault != "P28")
    throw ConfigError("args.fault of ab_control must be P28, got '" + fault + "'");
  return one.device.is_cpu() ? kSlowerCpuPct : kSlowerGpuPct;
}

double sample_ms(const PhaseCase& one) { return one.args.get_number("sample_ms", kMinSampleMs, 0); }

/// Conversions of ranges; more work is more calls.
SeriesOf conversions(const PhaseCase& one) {
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
  const auto convert = [ids, t, block] {
    nsa::block_ranges(nsa::RangesVersion::kV2, ids, t, block);
  };
  EventTimer timer(one.device);
  // Whole hundreds of calls, so that a percentage of them is a whole number of calls.
  const int64_t hundreds =
      (calls_per_sample(timer, convert, sample_ms(one)) + kPercent - 1) / kPercent;
  return [convert, hundreds](const std::string& name, int64_t pct) {
    const auto work = [convert, calls = hundreds * (kPercent + pct)] {
      for (int64_t i = 0; i < calls; ++i) convert();
    };
    return TimedSeries{name, work};
  };
}

/// Additions to one vector; more work is more of its elements, so a call is one kernel either way.
SeriesOf additions(const PhaseCase& one) {
  const int64_t elements = one.device.is_cpu() ? kElementsCpu : kElementsGpu;
  const auto count = [elements](int64_t pct) { return elements * (kPercent + pct) / kPercent; };
  const at::Tensor values =
      at::zeros({count(injected_pct(one))}, at::device(one.device).dtype(at::kFloat));
  const auto add_to = [values](int64_t number) {
    return [part = values.narrow(0, 0, number)] { part.add_(1); };
  };
  EventTimer timer(one.device);
  const int64_t calls = calls_per_sample(timer, add_to(elements), sample_ms(one));
  return [add_to, count, calls](const std::string& name, int64_t pct) {
    return TimedSeries{name, add_to(count(pct)), calls};
  };
}

SeriesOf work_of(const PhaseCase& one) {
  const std::string work = one.args.get_text("work", "ranges");
  if (work == "ranges") return conversions(one);
  if (work == "add") return additions(one);
  throw ConfigError("args.work must be ranges or add, got '" + work + "'");
}

}  // namespace

std::string run_ab_control(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of ab_control must be time, got '" + one.in.mode + "'");
  const SeriesOf series_of = work_of(one);
  const std::vector<TimedSeries> series = {series_of("base", 0), series_of("base.aa", 0),
                                           series_of("same", injected_pct(one))};
  int64_t step = 0;
  const int64_t rounds = one.args.get_int("rounds", 20, 1);
  time_rounds(one, series, rounds, step, rounds);
  return "";
}

}  // namespace suites
