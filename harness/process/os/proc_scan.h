#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

/// Facts of processes from /proc. Nothing here needs rights beyond those of the user who started
/// the processes.
namespace harness {

/// Variable in the environment of every worker that names its group, so that a descendant which
/// left the session is still found.
inline constexpr const char* kGroupVariable = "HARNESS_GROUP";

struct ProcessStat {
  pid_t pid = 0, ppid = 0, group = 0, session = 0;
  char state = '?';
  std::string name;
  uint64_t start_ticks = 0;  ///< since boot
};

/// Every process that is visible here, by pid.
std::vector<pid_t> all_processes();

/// Value of kGroupVariable in its environment; empty: none, or not readable.
std::string group_marker(pid_t pid);

/// nullopt when there is no such process.
std::optional<ProcessStat> read_stat(pid_t pid);

/// Which processes belong together: those of a session, and those that carry the marker in their
/// environment.
struct GroupKey {
  pid_t session = 0;        ///< 0: by marker only
  std::string marker;       ///< value of kGroupVariable; empty: by session only
  bool prefix = false;      ///< the marker is the beginning of the value
  uint64_t not_before = 0;  ///< start_ticks of the oldest process looked at
};

/// Living members (zombies are not living) apart from the caller, by pid.
std::vector<ProcessStat> find_group(const GroupKey& key);

/// SIGKILL to all members until none is left or `wait_s` is over. Returns those that are left.
std::vector<ProcessStat> kill_group(const GroupKey& key, double wait_s);

/// Facts of a process for an autopsy: command line, state, and per thread name, state, wchan,
/// syscall and kernel stack (where readable).
nlohmann::json describe_process(pid_t pid);

/// True when the process has a handler for the signal; sending it to others would kill them.
bool catches_signal(pid_t pid, int signal);

/// "SIGSEGV" for 11.
std::string signal_name(int signal);

}  // namespace harness
