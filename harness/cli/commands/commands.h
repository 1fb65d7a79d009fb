#pragma once
#include <filesystem>
#include <string>

#include "harness/cli/options.h"

/// One function a command; each returns the exit code of the program. Errors are thrown:
/// ConfigError (exit 2) and Error (exit 3); main prints them.
namespace harness::cli {

int run_command(const Options& options);
int list_command(const Options& options);
int plan_command(const Options& options);
int doctor_command(const Options& options);
int verify_command(const Options& options);
int explain_command(const Options& options);
int report_command(const Options& options);
int compare_command(const Options& options);
int bundle_command(const Options& options);
int schema_command(const Options& options);
int baseline_promote_command(const Options& options);
int history_import_command(const Options& options);
int history_list_command(const Options& options);
int history_trend_command(const Options& options);
int ab_rate_command(const Options& options);
int selftest_command(const Options& options);
int witnesses_command(const Options& options);

}  // namespace harness::cli
