// Program nsa-train: trains a decoder on a corpus or on random tokens, from the command line or as
// a worker.
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "base/options/command_line.h"
#include "base/options/refusal.h"
#include "base/text/plain_text.h"
#include "nsa/diagnostics/stack_dump.h"
#include "nsa/program/build_id.h"
#include "nsa/program/input_error.h"
#include "nsa/program/quick_exit.h"
#include "nsa/program/working_directory.h"
#include "nsa/train/case_options.h"
#include "nsa/train/run.h"

namespace {

using base::protocol::CaseArgs;
using base::protocol::CaseIn;
using nsa::SwitchSet;
using nsa::train::RankPlace;
using nsa::train::ResultLines;
using nsa::train::RunContext;
using nsa::train::TrainOptions;

constexpr const char* kExamples = R"(
A corpus is a folder made by nsa-data: .data/NAME, or --data-root DIR/NAME. Missing data is an
error; it is never replaced by random tokens. --worker reads one JSON request from standard input.
Several ranks: start it with torchrun --no-python, or with srun; each rank takes its part of a batch.

Examples:
  nsa-train --model tiny_cpu --data local_text --steps 200
  nsa-train --model m7c_125m --data local_text --device cuda --batch 8 --steps 1000 --out runs/m7c
  nsa-train --model tiny_cpu --data synthetic --steps 100 --result loss.jsonl
  nsa-train --model tiny_cpu --data local_text --checkpoints runs/tiny --resume --eval
  nsa-train --model tiny_cpu --data local_text --checkpoints runs/tiny --resume --sample "In the"
  torchrun --no-python --nproc-per-node 2 nsa-train --model m7c_125m --data local_text --device cuda)";

std::atomic<int> stop_signal{0};
/// The first signal ends the run after its step, the second one at once.
extern "C" void on_stop_signal(int signal) {
  if (stop_signal.exchange(signal) != 0) std::_Exit(128 + signal);
}

void print(const std::string& line) {
  std::fprintf(stderr, "nsa-train: %s\n", base::plain_text(line).c_str());
}

/// Text of a model on standard output, its lines kept; nothing in it controls a terminal.
void print_text(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    std::printf("%s\n", base::plain_text(line).c_str());
}

/// Switches of a run; the training shape counts as configuration, so that the record shows it.
SwitchSet make_switches(const TrainOptions& options, int64_t world, SwitchSet::Values config,
                        const SwitchSet::Values& command_line) {
  config.emplace("NSA_BATCH_SIZE", std::to_string(options.batch));
  config.emplace("NSA_ACCUM", std::to_string(options.accum));
  if (options.seq_len > 0) config.emplace("NSA_SEQ_LEN", std::to_string(options.seq_len));
  SwitchSet switches = SwitchSet::from_environment(config, command_line);
  switches.require_honoured("nsa-train", {"NSA_SEL_RANGES_V2",
                                          "NSA_USE_SEL_PACK",
                                          "NSA_USE_SEL_VARLEN",
                                          "NSA_USE_SEL_MASK",
                                          "NSA_FORCE_SEL_MASK",
                                          "NSA_FORCE_PARITY",
                                          "NSA_USE_FA2",
                                          "NSA_USE_FA2_WIN",
                                          "NSA_USE_FA2_CMP",
                                          "NSA_TRAIN_SAFE_PACK",
                                          "NSA_KERNELS",
                                          "NSA_STRICT_ASSERTS",
                                          "NSA_NVTX",
                                          "NSA_BATCH_SIZE",
                                          "NSA_ACCUM",
                                          "NSA_SEQ_LEN",
                                          "NSA_FWE_DOC_BATCH",
                                          "NSA_FWE_PREFETCH",
                                          "NSA_FWE_Q",
                                          "NSA_FWE_WARMUP_BATCHES",
                                          "NSA_FWE_WARMUP_TIMEOUT",
                                          "NSA_DDP_BUCKET_MB",
                                          "NSA_DDP_COMPRESS",
                                          "NSA_CASES_DIR"});
  for (const char* name : {"NSA_DDP_BUCKET_MB", "NSA_DDP_COMPRESS"})
    if (world == 1 && !switches.is_default(name))
      throw std::invalid_argument(std::string(name) +
                                  " is ignored by nsa-train with one rank, where no gradient "
                                  "travels; unset it or start several ranks");
  if (options.shard == "full" && !switches.is_default("NSA_DDP_BUCKET_MB"))
    throw std::invalid_argument(
        "NSA_DDP_BUCKET_MB is ignored by nsa-train with --shard full, where the gradients of a "
        "layer travel together; unset it");
  return switches;
}

void emit_hello(ResultLines& lines, const SwitchSet& switches, const RankPlace& place,
                const std::string& device) {
  std::vector<base::protocol::SwitchValue> list;
  for (const nsa::SwitchValue& s : switches.list())
    list.push_back({.name = s.name, .value = s.value, .origin = s.origin});
  lines.hello(nsa::build_id(), device, place,
              {{"libtorch", TORCH_VERSION}, {"compiler", __VERSION__}}, list);
}

/// Ranks that share one command line write files of their own: FILE, FILE.rank1, ...
/// Throws InputError where the folder of --out cannot be made.
std::unique_ptr<ResultLines> open_lines(std::string result, const std::string& out, bool worker,
                                        int64_t rank) {
  std::error_code error;
  if (!out.empty()) std::filesystem::create_directories(out, error);
  if (error)
    throw nsa::InputError("cannot make the folder --out " + out + ": " + error.message() +
                          "; name a folder that can be written");
  if (result.empty() && worker) return std::make_unique<ResultLines>("");
  if (result.empty() && !out.empty()) result = std::filesystem::path(out) / "result.jsonl";
  if (rank > 0 && !result.empty()) result += ".rank" + std::to_string(rank);
  if (!result.empty()) return std::make_unique<ResultLines>(result);
  return std::make_unique<ResultLines>();
}

/// One case of a worker; args that make no sense fail the case, not the process.
void work_on(const CaseIn& request, const CaseArgs& work, const RankPlace& place,
             ResultLines& lines) {
  RunContext context{.case_id = work.id,
                     .lines = &lines,
                     .place = place,
                     .out = request.out,
                     .stop_signal = &stop_signal,
                     .print = print};
  try {
    TrainOptions options = nsa::train::options_of_case(request, work);
    const SwitchSet switches = make_switches(options, place.world, request.switches, {});
    nsa::train::apply_switches(switches, options);
    context.switches = &switches;
    nsa::train::run_case(options, context);
  } catch (const nsa::InputError& e) {
    print(e.what());
    lines.case_end(work.id, e.what());
  }
}

int run_worker(const std::string& result, const RankPlace& place) {
  const CaseIn request = nsa::train::read_request(std::cin);
  const auto lines = open_lines(result, request.out, true, place.rank);
  TrainOptions phase_options;
  try {
    phase_options = nsa::train::options_of_case(request, {.id = "(phase)"});
  } catch (const nsa::InputError&) {
    // Reported by every case below.
  }
  emit_hello(*lines, make_switches(phase_options, place.world, request.switches, {}), place,
             request.device);
  for (const CaseArgs& work : request.cases) work_on(request, work, place, *lines);
  lines->done();
  return stop_signal == 0 ? 0 : 128 + stop_signal;
}

int run_once(TrainOptions options, const SwitchSet::Values& command_line, const std::string& result,
             const std::string& out, const RankPlace& place) {
  options.validate();
  const SwitchSet switches = make_switches(options, place.world, {}, command_line);
  nsa::train::apply_switches(switches, options);
  const auto lines = open_lines(result, out, false, place.rank);
  emit_hello(*lines, switches, place, options.device);
  const nsa::train::RunEnd end =
      run_case(options, {.case_id = "train",
                         .lines = lines.get(),
                         .switches = &switches,
                         .place = place,
                         .out = out,
                         .losses = out.empty() ? "" : std::filesystem::path(out) / "losses.csv",
                         .stop_signal = &stop_signal,
                         .print = print,
                         .print_text = print_text});
  lines->done();
  if (stop_signal != 0) return 128 + stop_signal;
  return end.failure.empty() && end.num_findings == 0 ? 0 : 1;
}

struct Arguments {
  TrainOptions options;
  std::string result, out, mode = "check";
  bool worker = false;
};

void declare(CLI::App& app, Arguments& a) {
  base::declare(app, a.options);
  app.add_option("--device", a.options.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--mode", a.mode, "check, or time: step samples too")
      ->capture_default_str()
      ->check(CLI::IsMember({"check", "time"}));
  app.add_option("--out", a.out, "folder for result.jsonl and losses.csv")
      ->check(base::not_empty());
  app.add_option("--result", a.result, "file for the result lines (worker: default descriptor 3)")
      ->check(base::not_empty());
  app.add_flag("--worker", a.worker, "read a request from standard input");
  app.footer(kExamples);
}

/// The shape options that were given, under their switches' names.
SwitchSet::Values given_shape(const CLI::App& app) {
  SwitchSet::Values values;
  for (const auto& [option, name] : {std::pair{"--batch", "NSA_BATCH_SIZE"},
                                     {"--accum", "NSA_ACCUM"},
                                     {"--seq-len", "NSA_SEQ_LEN"}})
    if (app.count(option) > 0 && app[option]->as<std::string>() != "0")
      values[name] = app[option]->as<std::string>();
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a Native Sparse Attention decoder."};
  app.failure_message(base::plain_failure);
  Arguments arguments;
  declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  nsa::install_stack_dump();
  std::signal(SIGTERM, on_stop_signal);
  std::signal(SIGINT, on_stop_signal);
  try {
    arguments.options.timed = arguments.mode == "time";
    const RankPlace place = nsa::train::read_rank_place(nsa::train::environment_variable);
    return arguments.worker ? run_worker(arguments.result, place)
                            : run_once(arguments.options, given_shape(app), arguments.result,
                                       arguments.out, place);
  } catch (const nsa::InputError& e) {
    print(e.what());
    return 2;
  } catch (const std::invalid_argument& e) {
    print(e.what());
    return 2;
  } catch (const std::exception& e) {
    print(e.what());
    return 3;
  }
}
