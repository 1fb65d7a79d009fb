#include "harness/preflight/leftovers.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <vector>

#include "base/files/whole_file.h"
#include "harness/process/os/fd.h"
#include "harness/process/os/proc_scan.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

/// An engine holds the lock of its run folder as long as it lives.
bool has_living_engine(const fs::path& run, const ProcessStat& worker) {
  const Fd folder(::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return worker.ppid != 1;
  return ::flock(folder.get(), LOCK_SH | LOCK_NB) != 0;
}

/// The same paths may be other folders there.
bool sees_other_folders(pid_t pid) {
  std::error_code error;
  const auto theirs = fs::read_symlink("/proc/" + std::to_string(pid) + "/ns/mnt", error);
  return error || theirs != fs::read_symlink("/proc/self/ns/mnt", error);
}

/// Processes that carry the marker RUN|PHASE/GROUP of an engine that is gone.
void add_processes(std::vector<std::string>& found) {
  for (const pid_t pid : all_processes()) {
    const std::string marker = group_marker(pid);
    const size_t bar = marker.find('|');
    if (bar == std::string::npos || sees_other_folders(pid)) continue;
    const auto stat = read_stat(pid);
    if (stat && stat->state != 'Z' && !has_living_engine(marker.substr(0, bar), *stat))
      found.push_back(stat->name + " pid " + std::to_string(pid) + " of " + marker);
  }
}

void add_files(const fs::path& runs, std::vector<std::string>& found) {
  std::error_code error;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (auto it = fs::recursive_directory_iterator(runs, skip, error);
       it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!base::whole_of(name).empty() || name == "STOP" || name == "stop")
      found.push_back(it->path().string());
  }
}

}  // namespace

std::string stale_leftovers(const fs::path& runs) {
  constexpr size_t kShown = 10;
  std::vector<std::string> found;
  add_processes(found);
  if (!runs.empty()) add_files(runs, found);
  std::sort(found.begin(), found.end());
  std::string text;
  for (size_t i = 0; i < std::min(found.size(), kShown); ++i)
    text += (i > 0 ? ", " : "") + found[i];
  if (found.size() > kShown) text += " and " + std::to_string(found.size() - kShown) + " more";
  return text;
}

}  // namespace harness
