#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nsa/train/train_options.h"

namespace nsa::train {

/// What the engine asks of one process (harness/protocol/README.md, "In").
struct WorkerRequest {
  struct Case {
    std::string id;
    nlohmann::json args;
  };
  std::string phase, kind, group, mode, device, out;
  uint64_t seed = 0;
  nlohmann::json args;
  std::vector<Case> cases;
  std::map<std::string, std::string> switches;

  /// Options of one case: defaults, then the phase's args, then the case's. Throws InputError for
  /// what apply_args rejects.
  TrainOptions options_of(const Case& work) const;
};

/// Reads the JSON line of standard input. Throws InputError naming what is wrong with it.
WorkerRequest parse_worker_request(const std::string& text);

}  // namespace nsa::train
