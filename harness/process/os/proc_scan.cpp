#include "harness/process/os/proc_scan.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace harness {
namespace {

namespace fs = std::filesystem;

/// Content of a file in /proc, whose reported size is 0; empty when unreadable.
std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string first_line(const fs::path& path) {
  const auto text = slurp(path);
  return text.substr(0, text.find('\n'));
}

std::vector<pid_t> numbered_entries(const fs::path& folder) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size()) found.push_back(pid);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool carries_marker(pid_t pid, const GroupKey& key) {
  if (key.marker.empty()) return false;
  const std::string marker = group_marker(pid);
  return key.prefix ? marker.starts_with(key.marker) : marker == key.marker;
}

}  // namespace

std::string group_marker(pid_t pid) {
  const auto environment = '\0' + slurp("/proc/" + std::to_string(pid) + "/environ");
  const auto entry = '\0' + std::string(kGroupVariable) + "=";
  const auto at = environment.find(entry);
  if (at == std::string::npos) return "";
  const auto begin = at + entry.size();
  return environment.substr(begin, environment.find('\0', begin) - begin);
}

std::vector<pid_t> all_processes() { return numbered_entries("/proc"); }

std::optional<ProcessStat> read_stat(pid_t pid) {
  const auto text = slurp("/proc/" + std::to_string(pid) + "/stat");
  const auto open = text.find('('), close = text.rfind(')');  // the name may hold anything
  if (open == std::string::npos || close == std::string::npos) return {};
  ProcessStat stat{.pid = pid, .name = text.substr(open + 1, close - open - 1)};
  std::istringstream rest(text.substr(close + 1));
  rest >> stat.state >> stat.ppid >> stat.group >> stat.session;
  std::string skipped;
  for (int field = 7; field < 22; field++) rest >> skipped;
  rest >> stat.start_ticks;
  return rest ? std::optional(stat) : std::nullopt;
}

std::vector<ProcessStat> find_group(const GroupKey& key) {
  std::vector<ProcessStat> members;
  for (const pid_t pid : all_processes()) {
    const auto stat = pid == ::getpid() ? std::nullopt : read_stat(pid);
    if (!stat || stat->state == 'Z' || stat->state == 'X') continue;
    if (stat->start_ticks < key.not_before) continue;
    const bool in_session = key.session > 0 && stat->session == key.session;
    if (in_session || carries_marker(pid, key)) members.push_back(*stat);
  }
  return members;
}

std::vector<ProcessStat> kill_group(const GroupKey& key, double wait_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (true) {
    if (key.session > 0) ::kill(-key.session, SIGKILL);
    const auto left = find_group(key);
    if (left.empty() || std::chrono::steady_clock::now() > end) return left;
    for (const auto& member : left) ::kill(member.pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

nlohmann::json describe_process(pid_t pid) {
  const fs::path root = "/proc/" + std::to_string(pid);
  auto command = slurp(root / "cmdline");
  std::replace(command.begin(), command.end(), '\0', ' ');
  nlohmann::json facts = {{"pid", pid}, {"command", command}, {"threads", nlohmann::json::array()}};
  if (const auto stat = read_stat(pid)) {
    facts["state"] = std::string(1, stat->state);
    facts["parent"] = stat->ppid;
  }
  for (const pid_t tid : numbered_entries(root / "task")) {
    const auto task = root / "task" / std::to_string(tid);
    const auto stat = slurp(task / "stat");
    const auto close = stat.rfind(')');
    facts["threads"].push_back(
        {{"tid", tid},
         {"name", first_line(task / "comm")},
         {"state", close + 2 < stat.size() ? stat.substr(close + 2, 1) : "?"},
         {"wchan", first_line(task / "wchan")},
         {"syscall", first_line(task / "syscall")},
         {"kernel_stack", slurp(task / "stack")}});
  }
  return facts;
}

bool catches_signal(pid_t pid, int signal) {
  std::istringstream status(slurp("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1)) & 1;
  return false;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

}  // namespace harness
