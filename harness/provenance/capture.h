#pragma once
#include <string>
#include <utility>
#include <vector>

namespace harness {

/// The output of a short-lived program. `exit` is its exit status, 128 + N when signal N ended it,
/// -1 when it could not be started or exceeded its time; `problem` is the reason.
struct Captured {
  int exit = -1;
  std::string out;      ///< standard output, at most `max_out` bytes
  std::string problem;  ///< empty when the program ran to its end
  bool ok() const { return exit == 0; }
};

struct CaptureOptions {
  std::string input = {};    ///< given on standard input
  double timeout_s = 10;     ///< then the program's process group is killed
  bool with_stderr = false;  ///< standard error joins `out`; else it is dropped
  std::string without_prefix =
      {};  ///< variables of this process that start so are left out; empty: none are
  std::vector<std::pair<std::string, std::string>> env =
      {};                    ///< added to this process's environment
  bool whole_tree = false;   ///< what left the program's process group is killed at its end, too
  bool only_env = false;     ///< `env` is the whole environment
  bool own_group = true;     ///< false: an interrupt of this program's group ends it, too
  size_t max_out = 1 << 20;  ///< bytes of `out` that are kept
};

/// Runs `argv` (argv[0] looked up in PATH), without what base/loader keeps from programs under
/// test, in a process group of its own and waits for its end. Standard error is dropped. For facts
/// such as `git rev-parse`; measured work goes through harness/process.
Captured capture(const std::vector<std::string>& argv, const CaptureOptions& options = {});

}  // namespace harness
