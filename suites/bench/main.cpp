// nsa-bench: microbenchmarks (Google Benchmark's flags, besides --device and --seed), or a command
// of its own; see README.md.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>

#include "base/files/whole_file.h"
#include "base/json/non_finite.h"
#include "base/options/command_line.h"
#include "base/options/refusal.h"
#include "base/text/plain_text.h"
#include "nsa/backend/kernel_code.h"
#include "nsa/program/quick_exit.h"
#include "nsa/program/working_directory.h"
#include "nsa/switches/switches.h"
#include "suites/bench/arguments.h"
#include "suites/bench/bench.h"
#include "suites/bench/bench_report.h"
#include "suites/bench/coverage/coverage.h"
#include "suites/bench/overhead_bench.h"
#include "suites/bench/targets/call_profile.h"
#include "suites/bench/targets/cpu_bench.h"
#include "suites/bench/targets/decode_target.h"
#include "suites/bench/targets/msa_bench.h"
#include "suites/bench/targets/repeated_bits.h"
#include "suites/bench/targets/roofline_bench.h"
#include "suites/bench/targets/target_bench.h"
#include "suites/bench/users/users_bench.h"
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

using suites::BenchOptions;

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
    base::write_whole_file(path, report.dump() + "\n");
  } catch (const base::FileError& error) {
    throw std::runtime_error("--out " + path + ": cannot be written: " + error.what());
  }
}

void print(const std::string& text) {
  if (!(std::cout << text << std::flush))
    throw std::runtime_error("standard output cannot be written");
}

/// The device of a command, whose kernels exist.
at::Device device_of(const BenchOptions& o, const std::string& kernels) {
  const at::Device device = suites::parse_device(o.device);
  nsa::want_kernels(kernels, device);
  return device;
}

/// Status of a command that times cases: 0, or 1 where a case has problems.
int run_cases(const BenchOptions& o, bool cold,
              const std::function<nlohmann::json(const suites::TargetBenchOptions&)>& run) {
  // Fails before minutes of work rather than after. Appending keeps the old report until a new one
  // is written.
  if (!o.out.empty() && !std::ofstream(o.out, std::ios::app))
    throw std::invalid_argument("--out " + o.out + ": cannot be written");
  suites::TargetBenchOptions bench{
      .filter = o.filter, .seconds = o.seconds, .cold = cold, .dense = !o.no_dense, .seed = o.seed};
  if (o.resume && o.out.empty())
    throw std::invalid_argument("--resume: name the report to go on with by --out");
  if (o.resume && std::filesystem::file_size(o.out) > 0) bench.earlier = read_report(o.out);
  if (!o.out.empty())
    bench.keep = [&](const nlohmann::json& report) { write_report(o.out, report); };
  const nlohmann::json report = run(bench);
  for (const nlohmann::json& row : report.at("cases"))
    if (!row.at("problems").empty()) return 1;
  return 0;
}

int print_problem(const std::string& problem) {
  std::cerr << "nsa-bench: " << base::plain_text(problem) << "\n";
  return kUsage;
}

/// Status of a comparison: 0, or 1 where a case is lost, wrong or duplicate.
int compare_reports(const BenchOptions& o, const std::string&) {
  try {
    int64_t faults = 0;
    print(suites::compare_text(read_report(o.before), read_report(o.after), &faults));
    return faults == 0 ? 0 : 1;
  } catch (const suites::NotComparable& error) {
    print(error.rows);
    const int status = print_problem(error.what());
    return error.faults == 0 ? status : 1;
  }
}

int time_targets(const BenchOptions& o, const std::string& kernels) {
  const at::Device device = device_of(o, kernels);
  return run_cases(o, true, [&](const auto& bench) {
    return suites::run_target_bench(device, suites::target_cases(), bench);
  });
}

int time_scaling(const BenchOptions& o, const std::string& kernels) {
  const at::Device device = device_of(o, kernels);
  return run_cases(o, false, [&](const auto& bench) {
    return suites::run_target_bench(device, suites::scaling_cases(), bench);
  });
}

int time_decode(const BenchOptions& o, const std::string& kernels) {
  const at::Device device = device_of(o, kernels);
  return run_cases(o, true,
                   [&](const auto& bench) { return suites::run_decode_bench(device, bench); });
}

int time_msa(const BenchOptions& o, const std::string& kernels) {
  const at::Device device = device_of(o, kernels);
  return run_cases(o, false,
                   [&](const auto& bench) { return suites::run_msa_bench(device, bench); });
}

int time_users(const BenchOptions& o, const std::string& kernels) {
  const at::Device device = device_of(o, kernels);
  return run_cases(o, false, [&](const auto& bench) {
    return suites::run_users_bench(device, suites::user_cases(), bench);
  });
}

int time_on_cpu(const BenchOptions& o, const std::string&) {
  return run_cases(o, false,
                   [&](const auto& bench) { return suites::run_cpu_bench(bench, o.pairs); });
}

int time_stages(const BenchOptions& o, const std::string&) {
  return run_cases(o, false,
                   [&](const auto& bench) { return suites::run_roofline_bench(bench, o.pairs); });
}

int time_overhead(const BenchOptions& o, const std::string& kernels) {
  const at::Device device = device_of(o, kernels);
  return run_cases(o, false,
                   [&](const auto& bench) { return suites::run_overhead_bench(device, bench); });
}

int count_launches(const BenchOptions& o, const std::string& kernels) {
  int64_t failed = 0;
  print(suites::profile_calls(device_of(o, kernels), o.filter, o.seed, failed));
  return failed == 0 ? 0 : 1;
}

int repeat_bits(const BenchOptions& o, const std::string& kernels) {
  std::string text;
  const int64_t differing =
      suites::repeat_calls(device_of(o, kernels), o.filter, o.times, o.seed, text);
  print(text);
  return differing == 0 ? 0 : 1;
}

int print_coverage(const BenchOptions& o, const std::string&) {
  print(suites::coverage_text(o.samples, o.markdown));
  return 0;
}

/// One command: its word, its help and what it does, with NSA_KERNELS.
struct Command {
  const char *name, *help;
  int (*run)(const BenchOptions&, const std::string& kernels);
};

constexpr Command kCommands[] = {
    {"targets", "time the cases that targets are set for, each judged against the oracle first",
     time_targets},
    {"scaling", "the same at 1k to 256k tokens, for the curves; hot only", time_scaling},
    {"decode", "a decode step of one layer against context and batch, in a CUDA graph",
     time_decode},
    {"msa",
     "MiniMax Sparse Attention at 32k to 128k tokens, judged first, beside the library's dense "
     "attention",
     time_msa},
    {"users",
     "calls of the operator that its users make, packed documents among them, each judged against "
     "the oracle first and timed as what runs",
     time_users},
    {"cpu",
     "the CPU kernels at 2k to 64k tokens, in fp32 and bf16, alternately with the library's dense "
     "attention; each case judged against the oracle first",
     time_on_cpu},
    {"roofline",
     "stages of the CPU kernels, forward and backward, beside what products and copies reach here",
     time_stages},
    {"overhead", "host time of a tiny call through the registered operator beside the layer's call",
     time_overhead},
    {"launches", "launches of a forward and a backward call with their times, through CUPTI",
     count_launches},
    {"repeat", "forward and backward again and again: every call must have the same bits",
     repeat_bits},
    {"compare",
     "ratios of two reports, new / old; cases that are LOST, NEW, WRONG or DUPLICATE have rows of "
     "their own and no ratio. Exit codes: 0, 1 a case is lost, wrong in NEW or duplicate, 2 "
     "usage, a time that is missing or not above 0, or no timed case in common",
     compare_reports},
    {"coverage",
     "tables: which calls have kernels on which card, as the choice of a call decides, and "
     "recorded "
     "times (docs/coverage.md)",
     print_coverage}};

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
  app.failure_message(base::plain_failure);
  app.require_subcommand(1);
  app.footer(kFooter);
  BenchOptions options;
  options.device = "cuda";
  const Command* chosen = nullptr;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    sub->callback([&chosen, &command] { chosen = &command; });
    base::declare(*sub, options, command.name);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return chosen->run(options, kernels);
}

bool is_command(const std::string& word) {
  return word == "--help" || word == "-h" ||
         std::ranges::any_of(kCommands, [&](const Command& one) { return word == one.name; });
}

int run_microbenchmarks(int argc, char** argv, const std::string& kernels) {
  const BenchOptions arguments = suites::take_micro_arguments(argc, argv);
  const at::Device where = device_of(arguments, kernels);
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
