#pragma once
#include <ostream>
#include <string>

#include "harness/runbook/testing.h"

namespace harness {

/// Each row breaks a good document in one place.
struct BadInput {
  const char* from;
  const char* to;
  const char* error;  ///< part of what() that must be there
};

inline void PrintTo(const BadInput& bad, std::ostream* out) {
  *out << bad.from << " -> " << bad.to;
}

/// The minimal runbook with the change of `bad` is refused, and its place named.
inline void expect_runbook_refused(const BadInput& bad) {
  const std::string error = TempConfigs().error_of(with(minimal_text(), bad.from, bad.to));
  EXPECT_THAT(error, testing::StartsWith("minimal.json:")) << "no position";
  EXPECT_THAT(error, testing::HasSubstr(bad.error));
}

}  // namespace harness
