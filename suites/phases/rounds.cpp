#include "suites/phases/rounds.h"

#include <algorithm>
#include <random>

#include "suites/instrument/clock_probe.h"
#include "suites/instrument/event_timer.h"

namespace suites {
namespace {

std::vector<size_t> round_order(size_t count, bool reversed) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = reversed ? count - 1 - i : i;
  order.insert(order.end(), order.rbegin(), order.rend());
  return order;
}

}  // namespace

void time_rounds(const PhaseCase& one, const std::vector<TimedSeries>& series, int64_t rounds,
                 int64_t& step, int64_t of) {
  EventTimer timer(one.device);
  std::mt19937_64 draw(one.seed() + static_cast<uint64_t>(step));
  for (int64_t round = 0; round < rounds; ++round) {
    int64_t place = 0;
    for (const size_t index : round_order(series.size(), draw() % 2 == 1)) {
      const TimedSeries& each = series[index];
      const std::optional<double> clock = sm_clock_mhz(one.device);
      const double ms = time_calls_ms(timer, each.work, each.calls);
      one.emitter.sample({.case_id = one.id,
                          .series = each.name,
                          .value = ms,
                          .unit = "ms",
                          .round = round,
                          .order = place++,
                          .clock_mhz = clock});
    }
    one.emitter.beat({.case_id = one.id, .step = ++step, .of = of, .at = "round"});
  }
}

}  // namespace suites
