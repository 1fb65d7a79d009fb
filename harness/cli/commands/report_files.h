#pragma once
#include "harness/cli/options.h"

namespace harness::cli {

/// Whether `compare` was given two JSON files, which are reports of benchmarks, not runs.
bool are_report_files(const Options& options);

/// Prints them benchmark by benchmark. 0; 1 where one is lost, skipped or failed. Throws
/// ConfigError and Error.
int compare_report_files(const Options& options);

}  // namespace harness::cli
