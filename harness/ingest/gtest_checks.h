#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "base/protocol/emitter.h"

namespace harness {

/// Every test in a report of GoogleTest; a skipped or disabled one is not ok. Throws
/// json::exception for a text that is no report.
std::vector<base::protocol::Check> read_gtest_checks(const nlohmann::json& report);

}  // namespace harness
