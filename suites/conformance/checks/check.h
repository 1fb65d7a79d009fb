#pragma once
#include <string>
#include <vector>

#include "suites/compare/compare.h"

namespace suites {

/// Failure codes that checks report (docs/faults.md).
namespace code {
inline constexpr const char* kOracleMismatch = "ORACLE_MISMATCH";
inline constexpr const char* kRopeProperty = "ROPE_PROPERTY";
inline constexpr const char* kCausalityLeak = "CAUSALITY_LEAK";
inline constexpr const char* kModeDisagreement = "MODE_DISAGREEMENT";
inline constexpr const char* kSpeedupWithheld = "SPEEDUP_WITHHELD";
inline constexpr const char* kPathProof = "PATH_PROOF";
inline constexpr const char* kConfigError = "CONFIG_ERROR";
inline constexpr const char* kInvariant = "INVARIANT_VIOLATED";
inline constexpr const char* kStuckMetric = "STUCK_METRIC";
}  // namespace code

/// One thing that was looked at: a GoogleTest expectation in nsa-tests, a `check` line in
/// nsa-worker.
struct Check {
  std::string id;  ///< oracle/OP/DTYPE/TENSOR/CASE or invariant/NAME/DTYPE/CASE
  bool ok = false;
  std::string code;    ///< failure code; empty when ok
  std::string detail;  ///< what was seen
  double err = 0, tol = 0;
};

using Checks = std::vector<Check>;

inline Check make_check(std::string id, bool ok, const char* failure_code, std::string detail,
                        double err = 0, double tol = 0) {
  return {std::move(id), ok, ok ? "" : failure_code, std::move(detail), err, tol};
}
inline Check make_check(std::string id, const CompareReport& report,
                        const char* failure_code = code::kOracleMismatch) {
  return make_check(std::move(id), report.ok, failure_code, report.text, report.err, report.tol);
}

/// "fp64", "fp32", "bf16", "fp16".
std::string dtype_name(at::ScalarType type);
/// Throws c10::Error naming the value and the choices.
at::ScalarType parse_dtype(const std::string& name);

}  // namespace suites
