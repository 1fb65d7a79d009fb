#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/process/os/proc_scan.h"

namespace harness {

/// What is known of a group that does not advance, taken before it is ended: facts of every process
/// and thread. Asks every process that handles SIGUSR1 to print its stacks on standard error; says
/// for the others that it did not.
nlohmann::json take_autopsy(const GroupKey& key, const std::string& why);

}  // namespace harness
