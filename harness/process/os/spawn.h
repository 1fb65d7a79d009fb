#pragma once
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "harness/process/os/fd.h"
#include "harness/schema/error.h"

namespace harness {

/// The program could not be started (missing, not executable, no process left). `code` is the errno
/// of exec or fork.
class NotStarted : public Error {
 public:
  NotStarted(const std::string& text, int code) : Error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

struct SpawnSpec {
  std::vector<std::string> argv;  ///< argv[0] is the path of the program
  std::vector<std::string> env;   ///< NAME=VALUE, the whole environment
  int result_fd = -1;             ///< becomes descriptor 3; -1: none
};

/// A process that leads its own session and process group and dies with the thread that started it.
struct Child {
  pid_t pid = -1;
  Fd pidfd;         ///< empty where the kernel has none
  Fd in, out, err;  ///< our ends of its standard streams, non-blocking
};

/// Starts a program. Throws NotStarted. The calling thread must outlive the child: its end kills
/// the child.
Child spawn(const SpawnSpec& spec);

/// The environment of a worker: what the allow-list lets through of ours, without search paths that
/// lead to other builds of the product, then `given` (switches), which win.
std::vector<std::string> worker_environment(const std::map<std::string, std::string>& given);

/// True for variables that reach workers: paths, locale, thread counts, CUDA/NCCL/Torch settings,
/// NSA_* switches.
bool env_allowed(const std::string& name);

}  // namespace harness
