#pragma once
#include <string>

namespace suites {

/// Both tables of `nsa-bench coverage`: what runs where, and how fast. `samples`: a folder of
/// reports.
std::string coverage_text(const std::string& samples, bool markdown);

}  // namespace suites
