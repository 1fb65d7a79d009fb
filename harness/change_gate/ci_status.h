#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace harness {

/// What a JUnit file of a CI run says.
struct CiStatus {
  int64_t tests = 0, failed = 0, skipped = 0;  ///< failed: failures and errors
  std::string first_failed;                    ///< CLASS.NAME of the first test that failed
  std::string problem;                         ///< why the text says nothing; empty: it does
};

/// Counts the test cases themselves; the totals that a file claims are not believed.
CiStatus read_junit(std::string_view text);

}  // namespace harness
