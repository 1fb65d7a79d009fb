#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace harness::cli {

/// What the user asked for; one struct for all commands, each reads its own part.
struct Options {
  std::string command =
      "run";            ///< run list plan doctor verify explain report compare bundle schema
  std::string runbook;  ///< name in configs/runbooks or a path
  std::vector<std::string> only, skip;
  std::vector<std::string> set;  ///< phase.key=value
  std::string out;               ///< run folder; default runs/RUNBOOK-TIME
  std::string resume;            ///< run folder to continue
  std::string gate = "strict";
  std::string baseline;                   ///< file, none, or empty: that of this hardware
  std::string ci_status;                  ///< JUnit file of a CI run, for phases ci_status
  std::string reason;                     ///< baseline promote
  bool write = false;                     ///< baseline promote: else it only shows what it would
  std::string history;                    ///< file of the history
  std::string metric;                     ///< history trend
  std::vector<std::string> targets;       ///< history import; explain: as they were given
  std::string supersedes;                 ///< finished run that this one is a later revision of
  std::vector<std::string> formats;       ///< of md html json junit; empty: all
  std::vector<std::string> command_line;  ///< argv as it was
  bool dry_run = false, quiet = false, json = false;
  std::string torch;    ///< folder with LibTorch's libraries
  std::string configs;  ///< folder with runbooks, kinds, ...; default: beside the program, else the
                        ///< checkout's
  std::string target;   ///< verify, report, bundle, explain: run folder or tar
  std::string against;  ///< compare: the second run
  bool other_hardware = false;      ///< compare: runs of different machines, too
  std::string id;                   ///< explain
  std::string head;                 ///< verify: head of the ledger as it was printed
  std::string name;                 ///< schema: runbook, kind, results, plan, baseline or hardware
  std::string device = "cpu";       ///< witnesses: of the runbook that is written
  std::vector<std::string> faults;  ///< selftest: ids; empty: all
  int64_t runs = 200;               ///< ab-rate
  double seconds = 0;               ///< ab-rate: stop then; 0: no limit
  bool damaged = false;             ///< bundle: pack a run that does not verify
  bool in_place = false;            ///< bundle: leave the report, pack the rest into the folder
  bool page = false;                ///< schema: the reference page instead of the JSON Schema
};

/// Parses argv. Prints help or the usage error itself; returns false when the program should end
/// with `exit_code` (0 after help, 2 after a usage error).
bool parse_options(int argc, const char* const* argv, Options& options, int& exit_code);

}  // namespace harness::cli
