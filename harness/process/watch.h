#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/protocol/lines.h"
#include "harness/process/os/proc_scan.h"
#include "harness/process/outcome.h"

namespace harness {

/// One process to run.
struct WorkerSpec {
  std::string group;                       ///< name for records
  std::vector<std::string> argv;           ///< argv[0] is the path of the program
  std::map<std::string, std::string> env;  ///< switches and the like, over the allow-list
  std::string marker;                      ///< value of HARNESS_GROUP: unique to this process
  std::string input;                       ///< standard input, then end of file
  std::filesystem::path result;  ///< raw evidence; empty: the program does not write the protocol
  std::filesystem::path out, err, autopsy;  ///< logs; the autopsy is written only after a stall
  base::protocol::Expectation want;
  std::filesystem::path stages = {};  ///< where it records its stages; empty: it does not
};

/// Callbacks during a run. Every function may be empty.
struct WatchHooks {
  std::function<void(const base::protocol::Beat&, double eta_s)> on_beat;
  std::function<int()> stop_signal;              ///< non-zero: end the group, we were interrupted
  std::function<nlohmann::json()> device_facts;  ///< device processes and memory, for the autopsy
  std::function<std::string()> device_held =
      {};  ///< processes that hold device memory; empty: none
};

/// Runs one process to its end, whatever that is, and returns how it ended. When it returns no
/// process of the group is left, or `left` names those that survived KILL. The files named by
/// `spec` must not exist. Throws Error when the engine's own files cannot be written (the group is
/// gone then, too).
GroupOutcome run_worker(const WorkerSpec& spec, const WatchPolicy& policy,
                        const WatchHooks& hooks = {});

}  // namespace harness
