// Program nsa-train-faulty: the worker form of nsa-train with a historical failure injected around
// the trainer's parts. `args.fault` names it; without one it trains as nsa-train does.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "nsa/program/build_id.h"
#include "nsa/program/input_error.h"
#include "nsa/program/quick_exit.h"
#include "nsa/program/working_directory.h"
#include "nsa/train/case_options.h"
#include "nsa/train/run.h"
#include "suites/faults/training_faults.h"

namespace {

using base::protocol::CaseArgs;
using base::protocol::CaseIn;
using nsa::SwitchSet;
using nsa::train::ResultLines;
using nsa::train::RunContext;
using nsa::train::TrainOptions;

constexpr const char* kHelp = R"(Usage: nsa-train-faulty [--result FILE] < REQUEST
The worker form of nsa-train (a request as JSON on standard input, findings as JSON lines on
descriptor 3 or in FILE) with a historical failure injected: args.fault names it. Only the self test
starts it: nsa-validate selftest.
)";

void print(const std::string& line) {
  std::fprintf(stderr, "nsa-train-faulty: %s\n", line.c_str());
}

/// Takes args.fault out of the request: nsa-train knows no such argument.
std::string take_fault(CaseIn& request) {
  const auto found = request.args.find("fault");
  if (found == request.args.end()) return "";
  const std::string fault = found->get<std::string>();
  request.args.erase(found);
  return fault;
}

void train(const CaseIn& request, const CaseArgs& work, const std::string& fault,
           const SwitchSet& switches, const nsa::train::RankPlace& place, ResultLines& lines) {
  TrainOptions options = nsa::train::options_of_case(request, work);
  nsa::train::apply_switches(switches, options);
  RunContext context;
  context.case_id = work.id;
  context.lines = &lines;
  context.switches = &switches;
  context.place = place;
  context.out = request.out;
  context.print = print;
  if (!fault.empty())
    context.exchange = [&](nsa::train::TrainerParts& parts) {
      suites::find_training_fault(fault).inject(parts, options);
    };
  nsa::train::run_case(options, context);
}

int work(const std::string& result) {
  CaseIn request = nsa::train::read_request(std::cin);
  const std::string fault = take_fault(request);
  const SwitchSet switches = SwitchSet::from_environment(request.switches, {});
  ResultLines lines(result);
  const auto place = nsa::train::read_rank_place(nsa::train::environment_variable);
  lines.hello(nsa::build_id(), request.device, place, {}, {});
  for (const CaseArgs& one : request.cases) train(request, one, fault, switches, place, lines);
  lines.done();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h")) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  try {
    return work(argc > 2 && std::string(argv[argc - 2]) == "--result" ? argv[argc - 1] : "");
  } catch (const nsa::InputError& e) {
    print(std::string("CONFIG_ERROR: ") + e.what());
    return 2;
  } catch (const std::exception& e) {
    print(e.what());
    return 3;
  }
}
