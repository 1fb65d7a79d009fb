#pragma once
#include <map>
#include <string>
#include <vector>

#include "harness/results/results.h"

namespace harness::cli {

/// The text reports of a run by file name; `formats` (md, junit) restricts them, empty means all.
std::map<std::string, std::string> render_reports(const Results& results,
                                                  const std::vector<std::string>& formats = {});

}  // namespace harness::cli
