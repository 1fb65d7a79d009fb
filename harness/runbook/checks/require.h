#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "harness/runbook/plan/plan.h"

/// Requirements of phases on facts of the machine.
namespace harness {

/// Why `fact` or what it is to hold is malformed (unknown fact, text where a number belongs);
/// empty when it is well formed. Numbers take a number or ">=N" "<=N" ">N" "<N" "==N", texts a glob
/// with * and ?, booleans true or false.
std::string requirement_problem(const std::string& fact, const nlohmann::json& want);

struct Unmet {
  std::string cause;   ///< of the closed list of causes, e.g. GPU_COUNT; empty when met
  std::string reason;  ///< "gpu.count is 0, want >=1", and what would make it hold
};

/// Checks one requirement. A fact that is unknown meets none. Both must be well formed.
Unmet check_requirement(const std::string& fact, const nlohmann::json& want, const Facts& facts);

/// Whether `text` matches `pattern`, in which * stands for any text and ? for one byte.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace harness
