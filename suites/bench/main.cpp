// nsa-bench: microbenchmarks (Google Benchmark's flags, besides --device and --seed), or a command
// of its own; see README.md.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>
#include <string>

#include "base/files/whole_file.h"
#include "base/json/non_finite.h"
#include "base/text/plain_text.h"
#include "nsa/backend/kernel_code.h"
#include "nsa/program/plain_failure.h"
#include "nsa/program/working_directory.h"
#include "nsa/switches/switches.h"
#include "suites/bench/arguments.h"
#include "suites/bench/bench.h"
#include "suites/bench/bench_report.h"
#include "suites/bench/targets/call_profile.h"
#include "suites/bench/targets/decode_target.h"
#include "suites/bench/targets/repeated_bits.h"
#include "suites/bench/targets/target_bench.h"
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

constexpr int kUsage = 2;

/// NaN becomes text, so that the comparison names the field that holds it.
nlohmann::json read_report(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf()))
    throw std::invalid_argument(path + ": cannot be read; name a report of nsa-bench");
  try {
    return nlohmann::json::parse(base::quote_non_finite(text.str()));
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(path + ": is no report of nsa-bench: " + error.what());
  }
}

void write_report(const std::string& path, const nlohmann::json& report) {
  try {
    base::write_whole_file(path, report.dump(1) + "\n");
  } catch (const base::FileError& error) {
    throw std::runtime_error("--out " + path + ": cannot be written: " + error.what());
  }
}

void print(const std::string& text) {
  if (!(std::cout << text << std::flush))
    throw std::runtime_error("standard output cannot be written");
}

/// What the commands that time cases share.
struct CaseOptions {
  std::string device = "cuda", out;
  suites::TargetBenchOptions bench;
  bool no_dense = false;
};

void add_cases(CLI::App& app, CaseOptions& o) {
  app.add_option("--device", o.device, "cuda or cuda:N (cpu: correctness only makes sense)")
      ->capture_default_str();
  app.add_option("--case", o.bench.filter, "only cases whose id contains this");
  app.add_option_function<std::string>(
         "--seed", [&o](const std::string& text) { o.bench.seed = suites::read_seed(text); },
         "of the data")
      ->default_str(std::to_string(o.bench.seed));
}

CLI::App* add_timed(CLI::App& app, const char* name, const char* what, CaseOptions& o) {
  CLI::App* command = app.add_subcommand(name, what);
  add_cases(*command, o);
  command->add_option("--out", o.out, "JSON with every sample");
  return command;
}

void add_passes(CLI::App& app, CaseOptions& o) {
  app.add_option("--seconds", o.bench.seconds, "of hot samples a pass, at least 20 of them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--no-dense", o.no_dense, "leave out the library's dense attention");
}

/// Status of a command that times cases: 0, or 1 where a case has problems.
int run_cases(CaseOptions& o,
              const std::function<nlohmann::json(const suites::TargetBenchOptions&)>& run) {
  // Fails before minutes of work rather than after. Appending keeps the old report until a new one
  // is written.
  if (!o.out.empty() && !std::ofstream(o.out, std::ios::app))
    throw std::invalid_argument("--out " + o.out + ": cannot be written");
  if (!o.out.empty())
    o.bench.keep = [&](const nlohmann::json& report) { write_report(o.out, report); };
  const nlohmann::json report = run(o.bench);
  for (const nlohmann::json& row : report.at("cases"))
    if (!row.at("problems").empty()) return 1;
  return 0;
}

int print_problem(const std::string& problem) {
  std::cerr << "nsa-bench: " << base::plain_text(problem) << "\n";
  return kUsage;
}

/// Status of a comparison: 0, or 1 where a case is lost, wrong or duplicate.
int compare_reports(const std::string& before, const std::string& after) {
  try {
    int64_t faults = 0;
    print(suites::compare_text(read_report(before), read_report(after), &faults));
    return faults == 0 ? 0 : 1;
  } catch (const suites::NotComparable& error) {
    print(error.rows);
    const int status = print_problem(error.what());
    return error.faults == 0 ? status : 1;
  }
}

constexpr const char* kFooter =
    "Without a command: microbenchmarks of every plain operator, with --device, --seed and the "
    "flags of Google\nBenchmark (--benchmark_filter=REGEX, --benchmark_list_tests, "
    "--benchmark_out=FILE ...).\nExit codes: 0, 1 a case is wrong, lost or differs, 2 usage.\n"
    "Examples:\n"
    "  nsa-bench targets --case paper_8k            one case beside its target and dense "
    "attention\n"
    "  nsa-bench scaling --out scaling.json         1k to 256k tokens\n"
    "  nsa-bench compare OLD.json NEW.json          what became faster, with intervals\n"
    "  nsa-bench --benchmark_filter=ranges          conversions of block ids";

int run_command(int argc, char** argv, const std::string& kernels) {
  CLI::App app("nsa-bench: what the operator takes");
  app.failure_message(nsa::plain_failure);
  app.require_subcommand(1);
  app.footer(kFooter);
  CaseOptions o;
  CLI::App* targets =
      add_timed(app, "targets",
                "time the cases that targets are set for, each judged against the oracle first", o);
  add_passes(*targets, o);
  CLI::App* scaling =
      add_timed(app, "scaling", "the same at 1k to 256k tokens, for the curves; hot only", o);
  add_passes(*scaling, o);
  CLI::App* decode = add_timed(
      app, "decode", "a decode step of one layer against context and batch, in a CUDA graph", o);
  CLI::App* launches = app.add_subcommand(
      "launches", "launches of a forward and a backward call with their times, through CUPTI");
  add_cases(*launches, o);
  int64_t times = 1000;
  CLI::App* repeat = app.add_subcommand(
      "repeat", "forward and backward again and again: every call must have the same bits");
  add_cases(*repeat, o);
  repeat->add_option("--times", times, "calls")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  std::string before, after;
  CLI::App* compare = app.add_subcommand(
      "compare",
      "ratios of two reports, new / old; cases that are LOST, NEW, WRONG or DUPLICATE have rows of "
      "their own and no ratio. Exit codes: 0, 1 a case is lost, wrong in NEW or duplicate, 2 "
      "usage, a time that is missing or not above 0, or no timed case in common");
  compare->add_option("OLD", before, "JSON of the older run")->required();
  compare->add_option("NEW", after, "JSON of the newer run")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (*compare) return compare_reports(before, after);
  const at::Device device = suites::parse_device(o.device);
  nsa::want_kernels(kernels, device);
  o.bench.dense = !o.no_dense;
  o.bench.cold = !*scaling;
  const auto passes = [&](const std::vector<suites::TargetCase>& cases) {
    return run_cases(
        o, [&](const auto& options) { return suites::run_target_bench(device, cases, options); });
  };
  if (*targets) return passes(suites::target_cases());
  if (*scaling) return passes(suites::scaling_cases());
  if (*decode)
    return run_cases(
        o, [&](const auto& options) { return suites::run_decode_bench(device, options); });
  if (*launches) {
    int64_t failed = 0;
    print(suites::profile_calls(device, o.bench.filter, o.bench.seed, failed));
    return failed == 0 ? 0 : 1;
  }
  std::string text;
  const int64_t differing = suites::repeat_calls(device, o.bench.filter, times, o.bench.seed, text);
  print(text);
  return differing == 0 ? 0 : 1;
}

bool is_command(const std::string& word) {
  static const std::set<std::string> kWords{"targets", "scaling", "decode", "launches",
                                            "repeat",  "compare", "--help", "-h"};
  return kWords.contains(word);
}

int run_microbenchmarks(int argc, char** argv, const std::string& kernels) {
  const suites::MicroArguments arguments = suites::take_micro_arguments(argc, argv);
  const at::Device where = suites::parse_device(arguments.device);
  nsa::want_kernels(kernels, where);
  suites::register_ranges_benchmarks(where, arguments.seed);
  suites::register_operator_benchmarks(where, arguments.seed);
  suites::register_decode_benchmarks(where, arguments.seed);
  benchmark::AddCustomContext("nsa_device", suites::device_name(where));
  benchmark::AddCustomContext("nsa_seed", std::to_string(arguments.seed));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return kUsage;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_named = argc > 1 && is_command(argv[1]);
  try {
    const std::string kernels = nsa::SwitchSet::from_environment().get_text("NSA_KERNELS");
    return is_named ? run_command(argc, argv, kernels) : run_microbenchmarks(argc, argv, kernels);
  } catch (const c10::Error& error) {
    return print_problem(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return print_problem(error.what());
  }
}
