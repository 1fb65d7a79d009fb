#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/options/option.h"

namespace harness::cli {

/// What the user asked for; one struct for all commands, each reads its own part. A default that
/// depends on something else is an empty text.
struct Options {
  std::string command = "run";            ///< commands.h
  std::vector<std::string> command_line;  ///< argv as it was
  std::string runbook;
  std::vector<std::string> only, skip;
  std::vector<std::string> set;
  std::string out;
  std::string resume;
  std::string gate = "strict";
  std::string baseline;
  std::string ci_status;
  std::string reason;
  bool write = false;
  std::string history;
  std::string metric;
  std::vector<std::string> targets;  ///< history import; explain: as they were given
  std::string supersedes;
  std::vector<std::string> formats;
  bool dry_run = false, quiet = false, json = false;
  std::string torch;
  std::string configs;                      ///< default: beside the program, else the checkout's
  std::string target;                       ///< verify, report, bundle, explain: run folder or tar
  std::string against;                      ///< compare, why: the second run
  std::string phase;                        ///< why
  std::string criterion, work, build, bin;  ///< bisect
  bool other_hardware = false;
  std::string id;  ///< explain
  std::string head;
  std::string name;
  std::string device = "cpu";
  std::vector<std::string> faults;
  int64_t runs = 200;
  double seconds = 0;
  bool in_place = false;
  bool page = false;

  /// The only description of the options of every command; "run" is the program without a command.
  template <class Visitor>
  static void describe(Visitor& v);

 private:
  template <class Visitor>
  static void describe_plan(Visitor& v);
  template <class Visitor>
  static void describe_run(Visitor& v);
  template <class Visitor>
  static void describe_evidence(Visitor& v);
  template <class Visitor>
  static void describe_figures(Visitor& v);
  template <class Visitor>
  static void describe_trials(Visitor& v);
};

/// Parses argv. Prints help or the usage error itself; returns false when the program should end
/// with `exit_code` (0 after help, 2 after a usage error).
bool parse_options(int argc, const char* const* argv, Options& options, int& exit_code);

template <class Visitor>
void Options::describe(Visitor& v) {
  describe_plan(v);
  describe_run(v);
  describe_evidence(v);
  describe_figures(v);
  describe_trials(v);
  v({.name = "json",
     .doc = "Print machine-readable JSON instead of text",
     .commands = "run|list|plan|doctor|selftest|ab-rate|compare|ingest|why"},
    &Options::json);
}

/// What is run, and from where.
template <class Visitor>
void Options::describe_plan(Visitor& v) {
  using O = Options;
  using base::TextMust;
  constexpr const char* kPlanned = "run|plan";
  v({.name = "runbook",
     .doc = "Runbook to run: a name (see list) or the path of a file",
     .must = TextMust::kNotBeEmpty,
     .not_with = "resume",
     .commands = kPlanned},
    &O::runbook);
  v({.name = "runbook",
     .doc = "Runbook of the criterion (default pr_gate, which compares each commit with GOOD in "
            "pairs)",
     .must = TextMust::kNotBeEmpty,
     .commands = "bisect"},
    &O::runbook);
  v({.name = "runbook",
     .doc = "Runbook of one phase: ab_rate_cpu, ab_rate_gpu",
     .required = true,
     .commands = "ab-rate"},
    &O::runbook);
  v({.name = "only",
     .doc = "Run only these phases and what they need (at best PARTIAL)",
     .not_with = "resume",
     .commands = kPlanned},
    &O::only);
  v({.name = "skip",
     .doc = "Leave these phases out, and what needs them (at best PARTIAL)",
     .not_with = "resume",
     .commands = kPlanned},
    &O::skip);
  v({.name = "set",
     .doc = "PHASE.KEY=VALUE: change a declared argument of a phase",
     .form = base::ListForm::kRepeated,
     .not_with = "resume",
     .commands = "run|plan|ab-rate|bisect"},
    &O::set);
  v({.name = "ci_status",
     .doc = "JUnit file of a CI run, for phases that judge it",
     .must = TextMust::kNameFile,
     .commands = kPlanned},
    &O::ci_status);
  v({.name = "configs",
     .doc = "Folder with runbooks and phase kinds (default: the shipped ones)",
     .must = TextMust::kNotBeEmpty,
     .commands = "run|plan|list|witnesses|ab-rate|bisect|baseline promote"},
    &O::configs);
}

/// How it is run, and what it leaves. A run is continued as it was begun.
template <class Visitor>
void Options::describe_run(Visitor& v) {
  using O = Options;
  using base::TextMust;
  v({.name = "out",
     .doc = "Run folder to create (default runs/RUNBOOK-TIME)",
     .must = TextMust::kNotBeEmpty,
     .not_with = "resume",
     .commands = "run|selftest"},
    &O::out);
  v({.name = "resume",
     .doc = "Continue the interrupted run in this folder",
     .must = TextMust::kNotBeEmpty,
     .commands = "run"},
    &O::resume);
  v({.name = "gate",
     .doc = "strict, or advisory: exit codes 4, 5 and 7 become 0 and the report states it",
     .choices = "strict or advisory",
     .not_with = "resume",
     .commands = "run"},
    &O::gate);
  v({.name = "baseline",
     .doc = "Baseline file, or none (default: configs/baselines/RUNBOOK/HARDWARE.json)",
     .must = TextMust::kNotBeEmpty,
     .commands = "run"},
    &O::baseline);
  v({.name = "supersedes",
     .doc = "Finished run (folder or tar) that this one replaces as its next revision",
     .commands = "run"},
    &O::supersedes);
  v({.name = "format",
     .doc = "Reports to write: md, html, json, junit (default: all)",
     .choices = "md, html, json or junit",
     .commands = "run"},
    &O::formats);
  v({.name = "torch",
     .doc = "Folder with LibTorch's libraries, for an installed tree",
     .must = TextMust::kNameFolder,
     .commands = "run|ab-rate"},
    &O::torch);
  v({.name = "dry_run",
     .doc = "Same as plan: show what would run, start nothing",
     .not_with = "resume",
     .commands = "run"},
    &O::dry_run);
  v({.name = "quiet", .doc = "Print only the verdict", .commands = "run"}, &O::quiet);
}

/// Finished runs.
template <class Visitor>
void Options::describe_evidence(Visitor& v) {
  using O = Options;
  using base::TextMust;
  v({.name = "target",
     .doc = "Run folder or tar made by bundle",
     .required = true,
     .positional = true,
     .commands = "verify|report"},
    &O::target);
  v({.name = "head",
     .doc = "Head of the ledger as it was printed at the end of the run",
     .must = TextMust::kNotBeEmpty,
     .commands = "verify"},
    &O::head);
  v({.name = "id",
     .doc = "An id of a report: G-, C-, M-, P-, A-, D-, F-, S-..., that of a table, or `answer` "
            "(the figures of its first sentences); before it, the run folder or tar (default: the "
            "newest in runs/)",
     .form = base::ListForm::kWords,
     .words = 2,
     .required = true,
     .positional = true,
     .commands = "explain"},
    &O::targets);
  v({.name = "a",
     .doc = "Run folder or tar made by bundle (compare: or the JSON of --benchmark_out)",
     .required = true,
     .positional = true,
     .commands = "compare|why"},
    &O::target);
  v({.name = "b",
     .doc = "Run folder or tar made by bundle (compare: or the JSON of --benchmark_out)",
     .required = true,
     .positional = true,
     .commands = "compare|why"},
    &O::against);
  v({.name = "other_hardware",
     .doc = "Compare runs of different machines, and state it in the first line",
     .commands = "compare"},
    &O::other_hardware);
  v({.name = "file",
     .doc = "JSON that Google Benchmark or GoogleTest wrote",
     .must = base::TextMust::kNameFile,
     .required = true,
     .positional = true,
     .commands = "ingest"},
    &O::target);
  v({.name = "good",
     .doc = "Commit at which the criterion PASSes",
     .required = true,
     .positional = true,
     .commands = "bisect"},
    &O::target);
  v({.name = "bad",
     .doc = "Later commit at which it FAILs",
     .required = true,
     .positional = true,
     .commands = "bisect"},
    &O::against);
  v({.name = "criterion",
     .doc = "Criterion of the runbook: C-...",
     .required = true,
     .commands = "bisect"},
    &O::criterion);
  v({.name = "work",
     .doc = "Folder for programs, runs and the worktree; an interrupted search goes on there "
            "(default runs/bisect-CRITERION-BAD)",
     .must = base::TextMust::kNotBeEmpty,
     .commands = "bisect"},
    &O::work);
  v({.name = "build",
     .doc = "Shell command that builds a commit in its worktree (default: the preset cpu)",
     .must = base::TextMust::kNotBeEmpty,
     .commands = "bisect"},
    &O::build);
  v({.name = "bin",
     .doc = "Where it leaves the programs (default build/gate/bin)",
     .must = base::TextMust::kNotBeEmpty,
     .commands = "bisect"},
    &O::bin);
  v({.name = "phase",
     .doc = "Explain the profile of this phase only (default: of every phase that both recorded)",
     .must = base::TextMust::kNotBeEmpty,
     .commands = "why"},
    &O::phase);
  v({.name = "out",
     .doc = "Folder for why.md and its plot (default: Markdown without a plot is printed)",
     .commands = "why"},
    &O::out);
  v({.name = "target",
     .doc = "Run folder",
     .required = true,
     .positional = true,
     .commands = "bundle"},
    &O::target);
  v({.name = "out",
     .doc = "Tar to write (default TARGET.tar); NAME.tar.gz and NAME.tar.xz are compressed",
     .commands = "bundle"},
    &O::out);
  v({.name = "in_place",
     .doc = "Leave what is rendered and the ledger, and pack every other file into "
            "TARGET/evidence.tar.xz, which all commands read: for a repository",
     .not_with = "out",
     .commands = "bundle"},
    &O::in_place);
}

/// Baselines and the history.
template <class Visitor>
void Options::describe_figures(Visitor& v) {
  using O = Options;
  v({.name = "target",
     .doc = "Run folder or tar that verifies and is no NO-GO",
     .required = true,
     .positional = true,
     .commands = "baseline promote"},
    &O::target);
  v({.name = "reason",
     .doc = "Why this run sets the baseline; stands in the file",
     .must = base::TextMust::kNotBeEmpty,
     .required = true,
     .commands = "baseline promote"},
    &O::reason);
  v({.name = "write", .doc = "Write the file that is shown", .commands = "baseline promote"},
    &O::write);
  v({.name = "db", .doc = "File of the history (default .history.sqlite)", .commands = "history"},
    &O::history);
  v({.name = "targets",
     .doc = "Run folders and tars",
     .form = base::ListForm::kWords,
     .required = true,
     .positional = true,
     .commands = "history import"},
    &O::targets);
  v({.name = "metric",
     .doc = "Full metric name",
     .required = true,
     .positional = true,
     .commands = "history trend"},
    &O::metric);
}

/// What is asked about runbooks, documents and the procedure itself.
template <class Visitor>
void Options::describe_trials(Visitor& v) {
  using O = Options;
  using base::TextMust;
  v({.name = "name",
     .doc = "Runbook whose scope and phases are shown",
     .positional = true,
     .commands = "list"},
    &O::name);
  v({.name = "name",
     .doc = "runbook, kind, results, plan, baseline or hardware",
     .required = true,
     .positional = true,
     .commands = "schema"},
    &O::name);
  v({.name = "page", .doc = "The reference page (Markdown) instead", .commands = "schema"},
    &O::page);
  v({.name = "faults", .doc = "Only these, e.g. P03,P11 (default: all)", .commands = "selftest"},
    &O::faults);
  v({.name = "out",
     .doc = "Write the runbook of those that are run instead, to this file",
     .must = TextMust::kNotBeEmpty,
     .commands = "witnesses"},
    &O::out);
  v({.name = "device",
     .doc = "cpu or cuda: of the runbook that is written",
     .choices = "cpu or cuda",
     .commands = "witnesses"},
    &O::device);
  v({.name = "runs",
     .doc = "Runs in all, those in --out included",
     .least = 1,
     .commands = "ab-rate"},
    &O::runs);
  v({.name = "seconds",
     .doc = "Start no further run after so long (default: none)",
     .least = 0,
     .commands = "ab-rate"},
    &O::seconds);
  v({.name = "out",
     .doc = "JSON lines, one a run; counted on when it is there",
     .required = true,
     .commands = "ab-rate"},
    &O::out);
}

}  // namespace harness::cli
