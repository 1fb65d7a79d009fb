#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/results/results.h"

namespace harness {

/// What a fault, or the same run without it, led to.
struct Injected {
  bool as_wanted = false;  ///< fault: its code was reported; control: nothing was
  std::string seen;        ///< what was reported, in one sentence
};

struct SelftestSetup {
  std::filesystem::path bin_dir = {};  ///< nsa-worker, nsa-train, nsa-train-faulty, nsa-data
  std::filesystem::path configs = {};  ///< runbooks and kinds
  std::string device = "cpu";
  int64_t seed = 1;
  /// Results of runs without a fault, by what ran: several faults share one.
  std::shared_ptr<std::map<std::string, Results>> clean_runs =
      std::make_shared<std::map<std::string, Results>>();
};

/// What a machine must have to show a fault; elsewhere its row is DEFERRED by this name.
enum class Needs { kCpu, kCuda, kTwoRanks };
std::string_view needs_name(Needs needs);  ///< "" | "cuda" | "2 ranks"

using FaultAction = std::function<Injected(const SelftestSetup&)>;

/// A historical failure of docs/faults.md that `selftest` injects for real.
struct InjectedFault {
  std::string id;       ///< P03
  std::string what;     ///< what is injected, in words
  std::string code;     ///< what must be reported
  FaultAction inject;   ///< the faulted run
  FaultAction control;  ///< its control without the fault
  Needs needs = Needs::kCpu;
};

/// Every fault, by id: the rows of docs/faults.md.
const std::vector<InjectedFault>& injected_faults();

/// Those with these ids, in their order; {"all"}: every one. Throws ConfigError with the nearest id
/// for one that selftest cannot inject.
std::vector<const InjectedFault*> chosen_faults(const std::vector<std::string>& ids);

}  // namespace harness
