#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/process/os/proc_scan.h"

namespace harness {

/// Facts of every process and thread of a group that does not advance, taken before it is ended.
/// Sends SIGUSR1 to every process that handles it, which then prints its stacks on standard error;
/// the others are recorded as not asked.
nlohmann::json take_autopsy(const GroupKey& key, const std::string& why);

}  // namespace harness
