#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace harness {

/// What a JUnit file of a CI run reports.
struct CiStatus {
  int64_t tests = 0;    ///< test cases
  int64_t failed = 0;   ///< failures and errors, those of a suite outside of any case included
  int64_t skipped = 0;  ///< cases that did not run: skipped, disabled, not run
  int64_t flaky = 0;    ///< cases that passed after a failed attempt (flakyFailure, flakyError)
  std::string first_failed;  ///< CLASS.NAME of the first test that failed
  std::string first_flaky;   ///< CLASS.NAME of the first flaky test
  std::string problem;       ///< why the text decides nothing; empty: it does
  std::string remark;        ///< what else is wrong with a text whose failures decide
};

/// Counts the test cases themselves, each once, below every root element: a failure decides
/// wherever it is. Counters that a suite declares are compared with its cases, never used alone.
/// Without a failure, a second root, an unknown status or result, a counter that contradicts the
/// cases, and a text in which nothing ran are problems.
CiStatus read_junit(std::string_view text);

}  // namespace harness
