#include "harness/process/autopsy.h"

#include <csignal>

namespace harness {

nlohmann::json take_autopsy(const GroupKey& key, const std::string& why) {
  nlohmann::json autopsy = {{"why", why}, {"processes", nlohmann::json::array()}};
  for (const auto& member : find_group(key)) {
    auto facts = describe_process(member.pid);
    const bool asked = catches_signal(member.pid, SIGUSR1) && ::kill(member.pid, SIGUSR1) == 0;
    facts["host_stacks"] =
        asked ? "asked for on standard error" : "no handler for SIGUSR1: not asked";
    autopsy["processes"].push_back(std::move(facts));
  }
  return autopsy;
}

}  // namespace harness
