// nsa-bench: microbenchmarks (Google Benchmark's flags, besides --device and --seed), or, as
// `nsa-bench targets`, the cases that targets are set for; `nsa-bench launches` shows what their
// calls launch, `nsa-bench repeat` whether calls repeat their bits, `nsa-bench compare` sets two
// runs beside each other.
#include <CLI/CLI.hpp>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include "suites/bench/bench.h"
#include "suites/bench/bench_report.h"
#include "suites/bench/call_profile.h"
#include "suites/bench/repeated_bits.h"
#include "suites/bench/target_bench.h"
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

namespace {

nlohmann::json read_report(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::invalid_argument(path + ": cannot be read");
  return nlohmann::json::parse(in);
}

void write_report(const std::string& path, const nlohmann::json& report) {
  std::ofstream out(path);
  out << report.dump(1) << "\n";
  if (!out.flush()) throw std::invalid_argument("--out " + path + ": cannot be written");
}

/// Status of `nsa-bench targets`: 0, or 1 where a case has problems.
int run_targets(const std::string& device, const suites::TargetBenchOptions& options,
                const std::string& out) {
  // Said before minutes of work, not after; what stands there stays until there is something new.
  if (!out.empty() && !std::ofstream(out, std::ios::app))
    throw std::invalid_argument("--out " + out + ": cannot be written");
  const nlohmann::json report = suites::run_target_bench(suites::parse_device(device), options);
  if (!out.empty()) write_report(out, report);
  for (const nlohmann::json& row : report.at("cases"))
    if (!row.at("problems").empty()) return 1;
  return 0;
}

int run_command(int argc, char** argv) {
  CLI::App app("nsa-bench: what the operator takes");
  app.require_subcommand(1);
  std::string device = "cuda", out, before, after;
  suites::TargetBenchOptions options;
  bool no_dense = false;
  CLI::App* targets = app.add_subcommand(
      "targets", "time the cases that targets are set for, each judged against the oracle first");
  targets->add_option("--device", device, "cuda or cuda:N (cpu: correctness only makes sense)")
      ->capture_default_str();
  targets->add_option("--case", options.filter, "only cases whose id contains this");
  targets->add_option("--seconds", options.seconds, "of hot samples a pass, at least 20 of them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  targets->add_option("--seed", options.seed, "of the data")->capture_default_str();
  targets->add_option("--out", out, "JSON with every sample");
  targets->add_flag("--no-dense", no_dense, "leave out the library's dense attention");
  CLI::App* launches = app.add_subcommand(
      "launches", "launches of a forward and a backward call with their times, through CUPTI");
  launches->add_option("--device", device, "cuda or cuda:N")->capture_default_str();
  launches->add_option("--case", options.filter, "only cases whose id contains this");
  launches->add_option("--seed", options.seed, "of the data")->capture_default_str();
  int64_t times = 1000;
  CLI::App* repeat = app.add_subcommand(
      "repeat", "forward and backward again and again: every call must have the same bits");
  repeat->add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
  repeat->add_option("--case", options.filter, "only cases whose id contains this");
  repeat->add_option("--seed", options.seed, "of the data")->capture_default_str();
  repeat->add_option("--times", times, "calls")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  CLI::App* compare = app.add_subcommand("compare", "ratios of two runs of `targets`, new / old");
  compare->add_option("OLD", before, "JSON of the older run")->required();
  compare->add_option("NEW", after, "JSON of the newer run")->required();
  CLI11_PARSE(app, argc, argv);
  options.dense = !no_dense;
  if (*targets) return run_targets(device, options, out);
  if (*launches) {
    std::cout << suites::profile_calls(suites::parse_device(device), options.filter, options.seed);
    return 0;
  }
  if (*repeat) {
    std::string text;
    const int64_t differing = suites::repeat_calls(suites::parse_device(device), options.filter,
                                                   times, options.seed, text);
    std::cout << text;
    return differing == 0 ? 0 : 1;
  }
  std::cout << suites::compare_text(read_report(before), read_report(after));
  return 0;
}

bool is_command(const std::string& word) {
  return word == "targets" || word == "launches" || word == "repeat" || word == "compare";
}

/// run_command, with an error as one line.
int command(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const c10::Error& error) {
    std::cerr << "nsa-bench: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "nsa-bench: " << error.what() << "\n";
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && is_command(argv[1])) return command(argc, argv);
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
