// nsa-worker: reads one case line from standard input, runs its phase kind, writes what it found to
// the result channel. Exit codes: 0 when `done` was written (failures are data), 2 when the case
// line or a switch is wrong, 3 otherwise. With --resident it takes case after case, each behind the
// path of its result file, and answers "done" on standard output.
#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/protocol/case.h"
#include "base/protocol/emitter.h"
#include "base/text/plain_text.h"
#include "nsa/backend/kernel_code.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/stack_dump.h"
#include "nsa/diagnostics/stage_record.h"
#include "nsa/program/build_id.h"
#include "nsa/program/quick_exit.h"
#include "nsa/program/working_directory.h"
#include "nsa/switches/switches.h"
#include "nsa/train/ranks/rank_place.h"
#include "suites/instrument/cupti/activity_collector.h"
#include "suites/instrument/facts.h"
#include "suites/phases/phase.h"

namespace suites {
namespace {

namespace protocol = base::protocol;

protocol::Hello make_hello(const nsa::SwitchSet& switches, at::Device device,
                           const nsa::train::RankPlace& place) {
  protocol::Hello hello{.program = "nsa-worker",
                        .build_id = nsa::build_id(),
                        .rank = place.rank,
                        .world = place.world,
                        .device = device_name(device),
                        .versions = library_versions(device)};
  for (const nsa::SwitchValue& each : switches.list())
    hello.switches.push_back({each.name, each.value, each.origin});
  return hello;
}

/// Runs one case; what it throws is its failure, a wrong argument excepted.
void run_case(const PhaseKind& kind, const PhaseCase& one) {
  std::string reason;
  try {
    reason = kind.run(one);
  } catch (const ConfigError&) {
    throw;
  } catch (const NotDecided& undecided) {
    return one.emitter.end_case_undecided(one.id, undecided.status(), undecided.what());
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (reason.empty())
    one.emitter.end_case(one.id);
  else
    one.emitter.fail_case(one.id, reason);
}

/// The stages of this process, in the folder where the engine keeps files of the phase; read when
/// the process hangs or was killed.
std::optional<nsa::StageRecord> record_stages(const std::filesystem::path& out, int64_t rank) {
  if (out.empty() || !std::filesystem::is_directory(out)) return {};
  return std::optional<nsa::StageRecord>(std::in_place,
                                         out / ("last_stage.rank" + std::to_string(rank) + ".bin"));
}

/// A switch that was set and that this kind of phase does not look at is listed. It is no error:
/// one environment serves all phases of a run. One that no phase of a run looks at, the engine
/// refuses.
void emit_ignored_switches(const PhaseKind& kind, const nsa::SwitchSet& switches,
                           protocol::Emitter& emitter) {
  nlohmann::json rows = nlohmann::json::array();
  for (const nsa::SwitchValue& each : switches.list())
    if (!switches.is_default(each.name) && !honours(kind, each.name))
      rows.push_back({each.name, each.value, each.origin, "not honoured"});
  if (rows.empty()) return;
  emitter.table(
      {.id = "switches_not_honoured",
       .title = "Switches that were set and that " + std::string(kind.name) + " does not look at",
       .columns = {"switch", "value", "set by", "here"},
       .rows = std::move(rows)});
}

/// `--ignored-by KIND[,KIND...]`: the switches of the environment that none of these kinds looks
/// at, a line each; `nsa-validate plan` asks for them.
void list_ignored_switches(const std::string& kinds) {
  const nsa::SwitchSet switches = nsa::SwitchSet::from_environment({});
  std::vector<const PhaseKind*> asked;
  std::istringstream names(kinds);
  for (std::string name; std::getline(names, name, ',');) asked.push_back(&find_phase_kind(name));
  for (const nsa::SwitchValue& each : switches.list()) {
    const auto looks = [&](const PhaseKind* kind) { return honours(*kind, each.name); };
    if (!switches.is_default(each.name) && std::ranges::none_of(asked, looks))
      std::cout << each.name << "=" << each.value << "\n";
  }
}

void run(const protocol::CaseIn& in, const std::string& result) {
  const PhaseKind& kind = find_phase_kind(in.kind);
  // The engine puts the runbook's switches into the environment; naming them here keeps their
  // origin.
  const nsa::SwitchSet switches = nsa::SwitchSet::from_environment(in.switches);
  nsa::NvtxRange::want(switches.get_bool("NSA_NVTX"));
  if (in.mode == "profile") inject_nvtx();
  const auto place = nsa::train::read_rank_place(nsa::train::environment_variable);
  const auto stages = record_stages(in.out, place.rank);
  const at::Device device = place.world == 1 || in.device != "cuda"
                                ? parse_device(in.device)
                                : parse_device("cuda:" + std::to_string(place.local_rank));
  nsa::want_kernels(honours(kind, "NSA_KERNELS") ? switches.get_text("NSA_KERNELS") : "auto",
                    device);
  std::vector<Args> args;
  for (const protocol::CaseArgs& one : in.cases)
    args.emplace_back(in.kind, protocol::merged_args(in, one), kind.args);
  protocol::Emitter emitter(result);
  emitter.hello(make_hello(switches, device, place));
  if (in.group.empty() || in.group == "g01") emit_ignored_switches(kind, switches, emitter);
  for (size_t i = 0; i < in.cases.size(); ++i)
    run_case(kind, {in, in.cases[i].id, args[i], device, emitter, nsa::NsaOptions::from(switches)});
  emitter.done();
}

/// Cases until the input ends; what one of them throws ends the process.
void run_resident() {
  for (std::string result; std::getline(std::cin, result);) {
    run(protocol::read_case(std::cin), result);
    std::cout << "done" << std::endl;
  }
}

constexpr const char* kHelp = R"(Usage: nsa-worker [--result FILE] < CASE_LINE
       nsa-worker --resident
       nsa-worker --ignored-by KIND[,KIND...]
Runs one case line (JSON, as the engine writes it: base/protocol/case.h) from standard input and
writes what it finds as JSON lines to descriptor 3, or to FILE. --resident takes case after case,
each behind the path of its result file. --ignored-by lists the NSA_* variables that none of these
kinds looks at. Exit codes: 0 when all lines were written (a failed check is data), 2 a case line,
argument, device or switch is wrong, 3 fault.
Kinds:)";

void print_help() {
  std::cout << kHelp;
  for (const PhaseKind& kind : phase_kinds()) std::cout << " " << kind.name;
  std::cout << R"(
Example:
  echo '{"v":1,"phase":"p","kind":"gate_health","group":"g01","mode":"check","device":"cpu","seed":1,
         "args":{},"cases":[{"id":"all"}],"out":"/tmp"}' | tr -d '\n' | nsa-worker --result lines.jsonl
)" << std::flush;
}

void serve(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  if (option == "--help" || option == "-h") return print_help();
  if (option == "--resident" && argc == 2) return run_resident();
  if (option == "--ignored-by" && argc == 3) return list_ignored_switches(argv[2]);
  if (argc > 1 && !(option == "--result" && argc == 3))
    throw ConfigError("unknown arguments from '" + std::string(option) +
                      "' on; known: --result FILE, --resident, --ignored-by KIND[,KIND...]");
  run(protocol::read_case(std::cin), protocol::result_path(argc, argv));
}

}  // namespace
}  // namespace suites

int main(int argc, char** argv) {
  nsa::install_stack_dump();
  at::set_num_threads(1);  // tensors are tiny: a second thread costs more than it gives, up to 100
                           // times on a busy machine
  const auto print = [](const std::string& text) {
    std::cerr << "nsa-worker: " << base::plain_text(text) << "\n";
  };
  try {
    suites::serve(argc, argv);
    return 0;
  } catch (const suites::ConfigError& error) {
    print(error.what());
    return 2;
  } catch (const base::protocol::Error& error) {
    print(std::string("CONFIG_ERROR: ") + error.what());
    return 2;
  } catch (const std::invalid_argument& error) {
    print(std::string("CONFIG_ERROR: ") + error.what());
    return 2;
  } catch (const c10::Error& error) {
    print(std::string("CONFIG_ERROR: ") + error.what_without_backtrace());
    return 2;
  } catch (const std::exception& error) {
    print(error.what());
    return 3;
  }
}
