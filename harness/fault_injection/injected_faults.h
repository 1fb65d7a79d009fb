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
struct Planted {
  bool as_wanted = false;  ///< fault: its code was reported; control: nothing was
  std::string seen;        ///< what was reported, in one sentence
};

struct SelftestSetup {
  std::filesystem::path bin_dir = {};  ///< nsa-worker, nsa-train, nsa-train-planted, nsa-data
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

using PlantedAction = std::function<Planted(const SelftestSetup&)>;

/// A historical failure of spec/failures.md that `selftest` plants for real.
struct PlantedFault {
  std::string id;         ///< P03
  std::string what;       ///< what is planted, in words
  std::string code;       ///< what must be reported
  PlantedAction plant;    ///< the faulted run
  PlantedAction control;  ///< its twin without the fault
  Needs needs = Needs::kCpu;
};

/// Every fault, by id: one row for each of spec/failures.md that can be planted.
const std::vector<PlantedFault>& planted_faults();

/// Those with these ids, in their order; {"all"}: every one. Throws ConfigError with the nearest id
/// for one that selftest cannot plant.
std::vector<const PlantedFault*> chosen_faults(const std::vector<std::string>& ids);

}  // namespace harness
