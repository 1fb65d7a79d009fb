#include "harness/builtin/builtins.h"
#include "harness/builtin/planted_faults.h"
#include "harness/provenance/gpu.h"
#include "harness/schema/error.h"
#include "harness/schema/nearest.h"

namespace harness {
namespace {

using nlohmann::json;

const PlantedFault& find_fault(const std::string& id) {
  std::vector<std::string> known;
  for (const PlantedFault& fault : planted_faults()) {
    if (fault.id == id) return fault;
    known.push_back(fault.id);
  }
  throw ConfigError("args.faults names " + in_quotes(id) + ", which selftest cannot plant" +
                    did_you_mean(id, known));
}

/// What a planted run throws is what it led to, and not what was wanted.
Planted tried(const std::function<Planted(const SelftestSetup&)>& run, const SelftestSetup& setup) {
  try {
    return run(setup);
  } catch (const std::exception& e) {
    return {false, std::string("the planted run itself failed: ") + e.what()};
  }
}

}  // namespace

void run_selftest(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                  protocol::Emitter& emitter) {
  const protocol::CaseArgs& one = call.in.cases.front();
  const auto ids = protocol::merged_args(call.in, one).at("faults").get<std::vector<std::string>>();
  std::vector<const PlantedFault*> faults;
  for (const std::string& id : ids) faults.push_back(&find_fault(id));
  // These faults need only a CPU: without the device of the runbook they are planted there.
  const bool has_device = call.in.device == "cpu" || !list_gpus().gpus.empty();
  const SelftestSetup setup{bin_dir, has_device ? call.in.device : "cpu", call.in.seed};
  json rows = json::array();
  for (const PlantedFault* fault : faults) {
    if (call.stop_signal && call.stop_signal() != 0)
      throw Error("interrupted before " + fault->id + "; go on with --resume");
    const Planted planted = tried(fault->plant, setup), control = tried(fault->control, setup);
    emitter.check({.case_id = one.id,
                   .id = "fault/" + fault->id,
                   .ok = planted.as_wanted,
                   .code = planted.as_wanted ? "" : "FAULT_MISSED",
                   .detail = fault->code + ": " + planted.seen});
    emitter.check({.case_id = one.id,
                   .id = "control/" + fault->id,
                   .ok = control.as_wanted,
                   .code = control.as_wanted ? "" : "FALSE_ALARM",
                   .detail = control.seen});
    rows.push_back(
        json::array({fault->id, fault->what, fault->code, planted.as_wanted ? "caught" : "MISSED",
                     control.as_wanted ? "clean" : "FALSE ALARM"}));
    emitter.beat({.case_id = one.id,
                  .step = static_cast<int64_t>(rows.size()),
                  .of = static_cast<int64_t>(faults.size()),
                  .at = fault->id});
  }
  emitter.table({.case_id = one.id,
                 .id = "catch_matrix",
                 .title = "Planted faults and what caught them",
                 .columns = {"fault", "planted", "code", "faulted run", "run without it"},
                 .rows = rows});
  emitter.end_case(one.id);
}

}  // namespace harness
