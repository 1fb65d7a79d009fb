#include "suites/phases/timing/rounds.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <random>

#include "suites/instrument/cache_flush.h"
#include "suites/instrument/clock_events.h"
#include "suites/instrument/clock_probe.h"
#include "suites/instrument/event_timer.h"

namespace suites {
namespace {

constexpr double kHundred = 100;

std::vector<size_t> round_order(size_t count, bool reversed) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = reversed ? count - 1 - i : i;
  order.insert(order.end(), order.rbegin(), order.rend());
  return order;
}

/// CPU time of the calling thread, ms.
double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

/// Time of one call, ms, the cache emptied before each.
double time_cold_ms(EventTimer& timer, CacheFlush& flush, const TimedSeries& series) {
  double sum = 0;
  for (int64_t i = 0; i < series.calls; ++i) {
    flush();
    sum += time_calls_ms(timer, series.work, 1);
  }
  return sum / static_cast<double>(series.calls);
}

std::string cold_name(const std::string& name) {
  const std::string again = ".aa";
  if (!name.ends_with(again)) return name + ".cold";
  return name.substr(0, name.size() - again.size()) + ".cold" + again;
}

/// One sample of a series, with the state of the machine beside it.
base::protocol::Sample take_sample(const PhaseCase& one, const TimedSeries& series,
                                   EventTimer& timer, CacheFlush* flush) {
  base::protocol::Sample sample{.case_id = one.id, .series = series.name, .unit = "ms"};
  if (series.before) series.before();
  sample.clock_mhz = sm_clock_mhz(one.device);
  const double ran = thread_ms();
  const double ms = flush != nullptr ? time_cold_ms(timer, *flush, series)
                                     : time_calls_ms(timer, series.work, series.calls);
  sample.value = series.joined ? series.joined(ms) : ms;
  sample.throttle = clock_events(one.device);
  const double wall = ms * static_cast<double>(series.calls);
  if (one.device.is_cpu() && wall > 0)
    sample.ran_pct = std::min(kHundred, kHundred * (thread_ms() - ran) / wall);
  return sample;
}

}  // namespace

std::vector<TimedSeries> cold_series(const PhaseCase& one, const std::vector<TimedSeries>& series,
                                     int64_t calls) {
  std::vector<TimedSeries> cold;
  if (!one.device.is_cuda()) return cold;
  for (const TimedSeries& each : series)
    cold.push_back({cold_name(each.name), each.work, std::min(calls, each.calls), true});
  return cold;
}

void time_rounds(const PhaseCase& one, const std::vector<TimedSeries>& series, int64_t rounds,
                 int64_t& step, int64_t of) {
  EventTimer timer(one.device);
  std::optional<CacheFlush> flush;
  if (std::ranges::any_of(series, &TimedSeries::cold)) flush.emplace(one.device);
  std::mt19937_64 draw(one.seed() + static_cast<uint64_t>(step));
  for (int64_t round = 0; round < rounds; ++round) {
    int64_t place = 0;
    for (const size_t index : round_order(series.size(), draw() % 2 == 1)) {
      const TimedSeries& each = series[index];
      auto sample = take_sample(one, each, timer, each.cold ? &flush.value() : nullptr);
      sample.round = round;
      sample.order = place++;
      one.emitter.sample(sample);
    }
    one.emitter.beat({.case_id = one.id, .step = ++step, .of = of, .at = "round"});
  }
}

}  // namespace suites
