#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/protocol/lines.h"

namespace harness {

/// One case for a worker, outside of any phase: for facts and injected faults.
struct WorkerCall {
  std::filesystem::path program;  ///< nsa-worker
  std::string kind;
  nlohmann::json args = nlohmann::json::object();
  std::string device = "cpu";
  int64_t seed = 1;
  std::vector<std::pair<std::string, std::string>> env =
      {};  ///< NSA_* of this process are not inherited
  double timeout_s = 120;
  std::vector<std::string> flags = {};  ///< before --result, e.g. --worker
  std::string mode = "check";
};

struct WorkerAnswer {
  int exit = -1;
  std::string log;      ///< standard output and error
  std::string problem;  ///< why there is no usable answer; empty when there is one
  base::protocol::Transcript transcript;  ///< raw evidence, held to every rule of the protocol
  bool reported_anything = false;         ///< the result channel holds at least one byte
  std::vector<base::protocol::Check> failed_checks() const;
  std::vector<base::protocol::Check> checks() const;
};

/// Runs the worker in a temporary folder, which is removed afterwards.
WorkerAnswer call_worker(const WorkerCall& call);

}  // namespace harness
