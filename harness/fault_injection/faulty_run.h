#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/fault_injection/injected_faults.h"
#include "harness/process/progress_clock.h"

/// Faults injected in a real run: engine, workers, evidence, findings and verdict are those of
/// every run; only the runbook is small (configs/runbooks/selftest_target.json).
namespace harness {

/// One way to inject a fault: the target's phase that is broken, and how.
struct FaultForm {
  std::string phase = {};  ///< id of the target runbook
  std::string fault = {};  ///< args.fault of the faulted run
  std::string code = {};   ///< what must be reported; "/DETAIL" behind it must stand in the symptom
  nlohmann::json args = nlohmann::json::object();      ///< of both runs, over those of the target
  nlohmann::json breaking = nlohmann::json::object();  ///< of the faulted run only
  std::optional<WatchPolicy> limits = {};              ///< of both runs
  bool reported_only = false;                          ///< the verdict may stay what it is (SLOW)
  bool may_be_undecided = false;  ///< a clean run on a busy machine may be INCONCLUSIVE (timing)
  /// Looks at the folder of the faulted run; what is missing there, in words, or nothing.
  std::function<std::string(const std::filesystem::path& run)> inspect = {};
};

/// A run of the target's phase `form.phase` and of a bystander, in a temporary folder.
/// `missing` gets the result of form.inspect. Throws Error when the run was interrupted.
Results run_target(const SelftestSetup& setup, const FaultForm& form, bool faulted,
                   std::string* missing = nullptr);

/// What differs between a clean and a faulted run outside the faulted phase: status of phases,
/// verdicts of criteria, findings. Empty: nothing does.
std::string change_outside(const Results& clean, const Results& faulted, const std::string& phase);

/// Caught: every form is reported by its code, turns the verdict, and changes nothing outside its
/// phase.
FaultAction inject_forms(std::vector<FaultForm> forms);

/// Clean: the same runs without a fault report nothing.
FaultAction control_forms(std::vector<FaultForm> forms);

}  // namespace harness
