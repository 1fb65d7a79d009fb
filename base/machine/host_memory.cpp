#include "base/machine/host_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace base {
namespace {

/// The number behind `key` in a file of lines "KEY NUMBER ..."; an empty key: the first word.
std::optional<int64_t> number_in(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t number = 0;
    if (!key.empty() && (!(words >> name) || name != key)) continue;
    if (words >> number) return number;
    return std::nullopt;  // "max"
  }
  return std::nullopt;
}

/// Names of one version of control groups.
struct GroupFiles {
  const char *folder, *limit, *usage, *cache;
};

/// What the limit of one group leaves.
std::optional<int64_t> left_in_group(const std::string& folder, const GroupFiles& files) {
  const auto limit = number_in(folder + "/" + files.limit, "");
  const auto usage = number_in(folder + "/" + files.usage, "");
  if (!limit || !usage) return std::nullopt;
  const int64_t cache = number_in(folder + "/memory.stat", files.cache).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cache));
}

void lower(std::optional<int64_t>& least, std::optional<int64_t> other) {
  if (other && (!least || *other < *least)) least = other;
}

}  // namespace

std::optional<int64_t> available_memory(const std::string& root) {
  constexpr GroupFiles kUnified{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
  constexpr GroupFiles kMemory{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                               "memory.usage_in_bytes", "total_inactive_file"};
  std::optional<int64_t> least = number_in(root + "/proc/meminfo", "MemAvailable:");
  if (least) *least *= 1024;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:/PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const GroupFiles& files = controllers.empty() ? kUnified : kMemory;
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      lower(least, left_in_group(root + files.folder + path, files));
      if (path.find('/') == std::string::npos) break;  // the root
    }
  }
  return least;
}

std::string gib_text(double bytes) {
  char text[32];
  const double gib = bytes / (1 << 30);
  std::snprintf(text, sizeof text, gib < 1000 ? "%.3g GiB" : "%.0f GiB", gib);
  return text;
}

}  // namespace base
