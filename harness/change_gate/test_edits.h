#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/change_gate/threshold_edits.h"

namespace harness {

/// A file before and after a change; no text where it is not there.
struct FileChange {
  std::optional<std::string> before, after;
};

/// What a change takes away from the tests, by path: tests of GoogleTest and words of CMake that
/// name a test which no changed file has any more (one that moved is not gone), more skipped or
/// disabled tests than before, and more that run on a GPU only. Weaker assertions it does not see.
std::map<std::string, std::vector<ThresholdEdit>> test_edits(
    const std::map<std::string, FileChange>& changes);

}  // namespace harness
