#include "harness/fault_injection/injected_faults.h"
#include "harness/phases/builtin_phases.h"
#include "harness/provenance/gpu/gpu.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;

/// What an injected run throws is what it led to, and not what was wanted.
Injected tried(const FaultAction& run, const SelftestSetup& setup) {
  try {
    return run(setup);
  } catch (const std::exception& e) {
    return {false, std::string("the injected run itself failed: ") + e.what()};
  }
}

class Selftest {
 public:
  Selftest(SelftestSetup setup, bool has_device, const BuiltinCall& call,
           base::protocol::Emitter& emitter)
      : setup_(std::move(setup)),
        has_device_(has_device),
        call_(call),
        case_(call.in.cases.front().id),
        emitter_(emitter) {}

  void run(const std::vector<const InjectedFault*>& faults) {
    for (const InjectedFault* fault : faults) {
      stop_if_asked("before " + fault->id);
      if (shown_here(fault->needs))
        inject(*fault);
      else
        defer(*fault);
      emitter_.beat({.case_id = case_,
                     .step = static_cast<int64_t>(rows_.size()),
                     .of = static_cast<int64_t>(faults.size()),
                     .at = fault->id});
    }
    emitter_.table({.case_id = case_,
                    .id = "catch_matrix",
                    .title = "Injected faults and what caught them",
                    .columns = {"fault", "injected", "code", "faulted run", "run without it"},
                    .rows = rows_});
    emitter_.end_case(case_);
  }

 private:
  bool shown_here(Needs needs) const {
    return needs == Needs::kCpu || (needs == Needs::kCuda && has_device_) ||
           needs == Needs::kTwoRanks;  // ranks are processes: Gloo joins them on any machine
  }

  void stop_if_asked(const std::string& where) const {
    if (call_.stop_signal && call_.stop_signal() != 0)
      throw Error("interrupted " + where + "; go on with --resume");
  }

  void check(const std::string& id, bool ok, const std::string& code, const std::string& detail) {
    emitter_.check(
        {.case_id = case_, .id = id, .ok = ok, .code = ok ? "" : code, .detail = detail});
  }

  void inject(const InjectedFault& fault) {
    SelftestSetup setup = setup_;
    if (fault.needs == Needs::kCuda) setup.device = "cuda";
    const Injected injected = tried(fault.inject, setup);
    stop_if_asked("in " + fault.id);
    const Injected control = tried(fault.control, setup);
    stop_if_asked("in " + fault.id);
    check("fault/" + fault.id, injected.as_wanted, "FAULT_MISSED",
          fault.code + ": " + injected.seen);
    check("control/" + fault.id, control.as_wanted, "FALSE_ALARM", control.seen);
    rows_.push_back(
        json::array({fault.id, fault.what, fault.code, injected.as_wanted ? "caught" : "MISSED",
                     control.as_wanted ? "clean" : "FALSE ALARM"}));
  }

  void defer(const InjectedFault& fault) {
    const std::string needs(needs_name(fault.needs));
    check("deferred/" + fault.id, true, "", "needs " + needs);
    rows_.push_back(
        json::array({fault.id, fault.what, fault.code, "DEFERRED: needs " + needs, "not run"}));
  }

  SelftestSetup setup_;
  bool has_device_;
  const BuiltinCall& call_;
  std::string case_;
  base::protocol::Emitter& emitter_;
  json rows_ = json::array();
};

}  // namespace

void run_selftest(const std::filesystem::path& bin_dir, const std::filesystem::path& configs,
                  const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const auto ids = base::protocol::merged_args(call.in, call.in.cases.front())
                       .at("faults")
                       .get<std::vector<std::string>>();
  const auto faults = chosen_faults(ids);
  // Most faults need only a CPU: without the device of the runbook they are injected there. Those
  // of a device are injected wherever there is one.
  const bool has_device = !list_gpus().gpus.empty();
  SelftestSetup setup{.bin_dir = bin_dir,
                      .configs = configs,
                      .device = has_device ? call.in.device : "cpu",
                      .seed = call.in.seed};
  Selftest(std::move(setup), has_device, call, emitter).run(faults);
}

}  // namespace harness
