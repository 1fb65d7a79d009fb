#include "harness/provenance/machine.h"

#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

extern char** environ;

namespace harness {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

/// Value of the first line `KEY<separator>VALUE` of a text file, without quotes; empty when there
/// is none.
std::string value_in(const fs::path& file, const std::string& key, char separator) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || line.substr(0, line.find_last_not_of(" \t", at - 1) + 1) != key)
      continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end + 1 - begin);
  }
  return "";
}

json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json meminfo_mib(const std::string& key) {
  const std::string text = value_in("/proc/meminfo", key, ':');
  return text.empty() ? json() : json(std::stoll(text) / 1024);
}

json first_line_or_null(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) ? json(line) : json();
}

/// Distinct (package, core) pairs; hyper-threads of one core count once.
json physical_cores() {
  std::ifstream in("/proc/cpuinfo");
  std::set<std::string> cores;
  std::string package;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("physical id")) package = line;
    if (line.starts_with("core id")) cores.insert(package + line);
  }
  return cores.empty() ? json() : json(cores.size());
}

json threads_allowed() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? json(CPU_COUNT(&set)) : json();
}

}  // namespace

json machine_facts() {
  utsname name{};
  uname(&name);
  return {{"os", text_or_null(value_in("/etc/os-release", "PRETTY_NAME", '='))},
          {"kernel", name.release},
          {"architecture", name.machine},
          {"libc", std::string("glibc ") + gnu_get_libc_version()},
          {"cpu",
           {{"model", text_or_null(value_in("/proc/cpuinfo", "model name", ':'))},
            {"cores", physical_cores()},
            {"threads_allowed", threads_allowed()}}},
          {"memory_mib", meminfo_mib("MemTotal")},
          {"memory_available_mib", meminfo_mib("MemAvailable")},
          {"cgroup",
           {{"memory_max_bytes", first_line_or_null("/sys/fs/cgroup/memory.max")},
            {"cpu_max", first_line_or_null("/sys/fs/cgroup/cpu.max")}}}};
}

json disk_facts(const fs::path& folder) {
  std::error_code error;
  fs::path at = fs::absolute(folder, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  struct statvfs disk{};
  if (statvfs(at.c_str(), &disk) != 0)
    return {
        {"path", at.string()}, {"free_mib", nullptr}, {"total_mib", nullptr}, {"writable", false}};
  const auto mib = [&](fsblkcnt_t blocks) { return blocks * disk.f_frsize / (1 << 20); };
  return {{"path", at.string()},
          {"free_mib", mib(disk.f_bavail)},
          {"total_mib", mib(disk.f_blocks)},
          {"writable", access(at.c_str(), W_OK) == 0 && fs::is_directory(at, error)}};
}

bool is_recorded_variable(const std::string& name) {
  static constexpr std::array<std::string_view, 7> kPrefixes = {
      "NCCL_", "CUDA_", "OMP_", "KMP_", "MKL_", "GOMP_", "PYTORCH_CUDA_ALLOC_CONF"};
  static constexpr std::array<std::string_view, 5> kSecret = {"TOKEN", "SECRET", "PASSWORD",
                                                              "CREDENTIAL", "KEY"};
  if (name.starts_with("NSA_")) return true;  // the registry of switches holds no secret
  const auto in_name = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) &&
         std::none_of(kSecret.begin(), kSecret.end(), in_name);
}

json environment_variables() {
  json effective = json::object(), foreign = json::object();
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string entry = *e;
    const size_t at = entry.find('=');
    const std::string name = entry.substr(0, at);
    if (at == std::string::npos || !is_recorded_variable(name)) continue;
    (name.starts_with("NSA_") ? effective : foreign)[name] = entry.substr(at + 1);
  }
  return {{"effective", effective}, {"foreign", foreign}};
}

}  // namespace harness
