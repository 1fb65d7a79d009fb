#pragma once
#include <string>
#include <vector>

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
int ingest_command(const Options& options);
int why_command(const Options& options);
int bisect_command(const Options& options);
int bundle_command(const Options& options);
int schema_command(const Options& options);
int baseline_promote_command(const Options& options);
int history_import_command(const Options& options);
int history_list_command(const Options& options);
int history_trend_command(const Options& options);
int ab_rate_command(const Options& options);
int selftest_command(const Options& options);
int witnesses_command(const Options& options);

/// One command: what the help shows of it, and what it does. A name of two words is a command of a
/// group, which stands before it and has no function.
struct Command {
  const char* name;
  const char* help;
  const char* examples;    ///< how it is called, a line each
  const char* exit_codes;  ///< what they mean
  int (*run)(const Options&);
  bool listed = true;  ///< false: in the help by its name alone, for who works on the instrument
};

/// All of them, in the order of the help; the first, "run", is the program without a command.
const std::vector<Command>& commands();

}  // namespace harness::cli
