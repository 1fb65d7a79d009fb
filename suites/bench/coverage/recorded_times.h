#pragma once
#include <string>

namespace suites {

/// How fast: forward and backward times of the reports of nsa-bench in `folder`, a row a call, a
/// column a report; a line with the files that are missing. Throws std::invalid_argument for a file
/// that is no report.
std::string recorded_times(const std::string& folder, bool markdown);

}  // namespace suites
