// nsa-bench: Google Benchmark flags, and before them --device cpu|cuda|cuda:N (default cpu) and
// --seed N.
#include <cstring>
#include <iostream>
#include <string>

#include "suites/bench/bench.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"

namespace suites {

void time_iterations(benchmark::State& state, at::Device device,
                     const std::function<void()>& work) {
  EventTimer timer(device);
  time_calls_ms(timer, work, 1);
  for (auto _ : state) state.SetIterationTime(time_calls_ms(timer, work, 1) / 1e3);
}

}  // namespace suites

int main(int argc, char** argv) {
  std::string device = "cpu";
  uint64_t seed = 20250216;
  try {
    for (int i = 1; i + 1 < argc;) {
      const bool is_device = std::strcmp(argv[i], "--device") == 0,
                 is_seed = std::strcmp(argv[i], "--seed") == 0;
      if (!is_device && !is_seed) {
        ++i;
        continue;
      }
      if (is_device)
        device = argv[i + 1];
      else
        seed = std::stoull(argv[i + 1]);
      for (int k = i; k + 2 <= argc; ++k) argv[k] = argv[k + 2];
      argc -= 2;
    }
    const at::Device where = suites::parse_device(device);
    suites::register_ranges_benchmarks(where, seed);
    suites::register_operator_benchmarks(where, seed);
    suites::register_decode_benchmarks(where, seed);
    benchmark::AddCustomContext("nsa_device", suites::device_name(where));
    benchmark::AddCustomContext("nsa_seed", std::to_string(seed));
  } catch (const c10::Error& error) {
    std::cerr << "nsa-bench: " << error.what_without_backtrace() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "nsa-bench: --seed must be a number >= 0: " << error.what() << "\n";
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
