#include "harness/cli/options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/text/plain_text.h"
#include "harness/cli/commands/version.h"
#include "harness/cli/paths.h"

namespace harness::cli {
namespace {

constexpr const char* kExamples =
    "Exit codes: 0 GO, 7 CONDITIONAL GO, 8 PARTIAL (--only, --skip), 1 NO-GO, 4/5 undecided, "
    "6 evidence, 3 fault, 2 usage, 129/130/131/143 interrupted.\n"
    "Examples:\n"
    "  nsa-validate --runbook smoke_cpu                       judge this checkout on this machine, "
    "no GPU needed\n"
    "  nsa-validate plan --runbook single_gpu                 what would run here, and what could "
    "not be decided\n"
    "  nsa-validate explain C-equivalence.v2                  where a figure or verdict comes "
    "from\n";

/// One line an option. Options that exclude each other are named in the error, not in the help.
class ShortFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();  // "TEXT:{strict,advisory}"
    return " " + type.substr(0, type.find(':')) + (option->get_expected_max() > 1 ? ",..." : "");
  }
};

/// A variable of a script that was never set must not look like an option that was not given.
CLI::Validator not_empty() {
  return {[](std::string& text) { return text.empty() ? std::string("must not be empty") : ""; },
          ""};
}

void add_run_options(CLI::App& app, Options& o) {
  app.add_option("--runbook", o.runbook, "Runbook to run: a name (see list) or the path of a file")
      ->check(not_empty());
  app.add_option("--only", o.only, "Run only these phases and what they need (at best PARTIAL)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--skip", o.skip, "Leave these phases out, and what needs them (at best PARTIAL)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--set", o.set, "PHASE.KEY=VALUE: change a declared argument of a phase")
      ->allow_extra_args(false);
  app.add_option("--ci-status", o.ci_status, "JUnit file of a CI run, for phases that judge it")
      ->check(CLI::ExistingFile);
  app.add_option("--configs", o.configs,
                 "Folder with runbooks and phase kinds (default: the shipped ones)")
      ->check(not_empty());
}

void add_output_options(CLI::App& app, Options& o) {
  app.add_option("--out", o.out, "Run folder to create (default runs/RUNBOOK-TIME)")
      ->check(not_empty());
  CLI::Option* resume =
      app.add_option("--resume", o.resume, "Continue the interrupted run in this folder")
          ->check(not_empty());
  app.add_option("--gate", o.gate,
                 "strict, or advisory: exit codes 4, 5 and 7 become 0 and the report states it")
      ->check(CLI::IsMember({"strict", "advisory"}))
      ->capture_default_str();
  app.add_option("--baseline", o.baseline,
                 "Baseline file, or none (default: configs/baselines/RUNBOOK/HARDWARE.json)")
      ->check(not_empty());
  app.add_option("--supersedes", o.supersedes,
                 "Finished run (folder or tar) that this one replaces as its next revision");
  app.add_option("--format", o.formats, "Reports to write: md, html, json, junit (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"md", "html", "json", "junit"}));
  app.add_option("--torch", o.torch, "Folder with LibTorch's libraries, for an installed tree")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--dry-run", o.dry_run, "Same as plan: show what would run, start nothing");
  // A run is continued as it was begun.
  for (const char* fixed :
       {"--runbook", "--only", "--skip", "--set", "--out", "--gate", "--dry-run"})
    resume->excludes(app.get_option(fixed));
}

void add_json_option(CLI::App& app, Options& o) {
  app.add_flag("--json", o.json, "Print machine-readable JSON instead of text");
}

/// What stands under the options of a command: how it is called, and what its exit code means.
void teach(CLI::App& command, const std::string& examples, const std::string& exit_codes) {
  command.footer("Exit codes: " + exit_codes + "\nExamples:\n" + examples);
}

bool is_report_id(const std::string& word) {
  return word.size() > 2 && word[1] == '-' &&
         std::string_view("CMPADFSG").find(word[0]) != std::string_view::npos;
}

/// `explain [DIR] ID`: the id comes last; where only the first word is one, that is meant.
void split_explain(Options& o) {
  const std::string first = o.targets.front(), last = o.targets.back();
  const bool swapped = is_report_id(first) && !is_report_id(last);
  o.id = swapped ? first : last;
  if (o.targets.size() == 2) o.target = swapped ? last : first;
}

CLI::App* add_command(CLI::App& app, Options& o, const char* name, const char* help) {
  CLI::App* command = app.add_subcommand(name, help);
  command->callback([&o, name] { o.command = name; });
  return command;
}

void add_history_commands(CLI::App& app, Options& o) {
  CLI::App* baseline = app.add_subcommand("baseline", "Reviewed figures that criteria refer to");
  baseline->require_subcommand(1);
  teach(*baseline,
        "  nsa-validate baseline promote runs/single_gpu-TIME --reason \"first release\"\n",
        "those of the subcommand (baseline promote --help)");
  CLI::App* promote = baseline->add_subcommand(
      "promote", "Show the baseline that a run would set for its hardware; --write writes it");
  promote->callback([&o] { o.command = "baseline promote"; });
  promote->add_option("target", o.target, "Run folder or tar that verifies and is no NO-GO")
      ->required();
  promote->add_option("--reason", o.reason, "Why this run sets the baseline; stands in the file")
      ->required()
      ->check(not_empty());
  promote->add_flag("--write", o.write, "Write the file that is shown");
  promote->add_option("--configs", o.configs, "Folder that holds baselines/");
  teach(*promote,
        "  nsa-validate baseline promote runs/single_gpu-TIME --reason \"first release\"\n"
        "  nsa-validate baseline promote runs/single_gpu-TIME --reason \"first release\" --write\n",
        "0 shown or written, 2 not a run that can set one, 6 the run does not verify");
  CLI::App* history =
      app.add_subcommand("history", "Figures of earlier runs: a cache over run folders and tars");
  history->require_subcommand(1);
  teach(*history,
        "  nsa-validate history import runs/*\n"
        "  nsa-validate history trend train_text.speed.rate_tok_s\n",
        "those of the subcommand (history trend --help)");
  history->add_option("--db", o.history, "File of the history (default .history.sqlite)");
  CLI::App* import = history->add_subcommand("import", "Take in runs that verify");
  import->callback([&o] { o.command = "history import"; });
  import->add_option("targets", o.targets, "Run folders and tars")->required();
  teach(*import, "  nsa-validate history import runs/*\n",
        "0, 6 a run does not verify (the others are taken in)");
  CLI::App* list = history->add_subcommand("list", "Runs that were taken in");
  list->callback([&o] { o.command = "history list"; });
  teach(*list, "  nsa-validate history --db /tmp/h.sqlite list\n", "0, 3 fault");
  CLI::App* trend = history->add_subcommand("trend", "One figure over time, and where it stepped");
  trend->callback([&o] { o.command = "history trend"; });
  trend->add_option("metric", o.metric, "Full metric name")->required();
  teach(*trend, "  nsa-validate history trend train_text.speed.rate_tok_s\n",
        "0, 2 no run has that figure");
}

void add_commands(CLI::App& app, Options& o) {
  const char* target_help = "Run folder or tar made by bundle";
  CLI::App* list = add_command(app, o, "list", "Runbooks, their phases and the hardware they want");
  list->add_option("--configs", o.configs, "Folder with runbooks and phase kinds");
  add_json_option(*list, o);
  list->add_option("name", o.name, "Runbook whose scope and phases are shown");
  teach(*list,
        "  nsa-validate list\n  nsa-validate list smoke_cpu\n  nsa-validate list --json | jq "
        "'.[].name'\n",
        "0, 2 a runbook is wrong");
  CLI::App* plan = add_command(app, o, "plan",
                               "Order, cases, minutes, and which criteria this machine can decide");
  add_run_options(*plan, o);
  add_json_option(*plan, o);
  teach(*plan,
        "  nsa-validate plan --runbook single_gpu\n"
        "  nsa-validate plan --runbook smoke_cpu --set train_text.steps=50\n",
        "0, 5 a run here would be undecided, 8 PARTIAL, 2 usage or a switch that would be refused");
  CLI::App* doctor =
      add_command(app, o, "doctor", "Basic facts of this machine and what is missing on it");
  add_json_option(*doctor, o);
  teach(*doctor, "  nsa-validate doctor\n", "0 nothing stands in the way, 3 something does");
  add_history_commands(app, o);
  CLI::App* selftest = add_command(
      app, o, "selftest", "Inject the historical faults and require that each is reported");
  selftest->add_option("--faults", o.faults, "Only these, e.g. P03,P11 (default: all)")
      ->delimiter(',');
  selftest->add_option("--out", o.out, "Run folder to create (default runs/selftest-TIME)")
      ->check(not_empty());
  add_json_option(*selftest, o);
  teach(*selftest, "  nsa-validate selftest\n  nsa-validate selftest --faults P03,P11\n",
        "0 every fault was reported, 1 one was not, others as a run's");
  CLI::App* witnesses = add_command(app, o, "witnesses",
                                    "How each criterion of the shipped runbooks was seen to fail");
  witnesses->add_option("--configs", o.configs, "Folder with runbooks, phase kinds and witnesses");
  witnesses
      ->add_option("--out", o.out, "Write the runbook of those that are run instead, to this file")
      ->check(not_empty());
  witnesses->add_option("--device", o.device, "cpu or cuda: of the runbook that is written")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  teach(*witnesses, "  nsa-validate witnesses\n",
        "0 each one was, 1 those that were not are listed, 2 a file is wrong");
  CLI::App* ab_rate = add_command(
      app, o, "ab-rate", "Count the results of the A/B procedure for an A/B phase over many runs");
  ab_rate->add_option("--runbook", o.runbook, "Runbook of one phase: ab_rate_cpu, ab_rate_gpu")
      ->required();
  ab_rate->add_option("--set", o.set, "PHASE.KEY=VALUE, e.g. ab.slowdown_pct=3")
      ->allow_extra_args(false);
  ab_rate->add_option("--runs", o.runs, "Runs in all, those in --out included")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  ab_rate->add_option("--seconds", o.seconds, "Start no further run after so long (default: none)")
      ->check(CLI::NonNegativeNumber);
  ab_rate->add_option("--out", o.out, "JSON lines, one a run; counted on when it is there")
      ->required();
  ab_rate->add_option("--torch", o.torch, "Folder with LibTorch's libraries");
  ab_rate->add_option("--configs", o.configs, "Folder with runbooks and phase kinds");
  add_json_option(*ab_rate, o);
  teach(
      *ab_rate,
      "  nsa-validate ab-rate --runbook ab_rate_cpu --out equal.jsonl\n"
      "  nsa-validate ab-rate --runbook ab_rate_cpu --set ab.slowdown_pct=15 --out slower.jsonl\n",
      "0 counted, 2 usage, 3 a run has no verdict, 130/143 interrupted (call it again)");
  CLI::App* verify = add_command(
      app, o, "verify", "Check hashes, derive figures, verdict and reports again, compare bytes");
  verify->add_option("target", o.target, target_help)->required();
  verify->add_option("--head", o.head, "Head of the ledger as it was printed at the end of the run")
      ->check(not_empty());
  teach(*verify,
        "  nsa-validate verify runs/smoke_cpu-TIME\n"
        "  nsa-validate verify run.tar --head 6b350ac5...   nothing changed since it was printed\n",
        "0 everything follows from the evidence, 6 it does not");
  CLI::App* explain =
      add_command(app, o, "explain", "Formula, samples and files behind an id of a report");
  explain
      ->add_option("[dir] id", o.targets,
                   "[Run folder or tar (default: the newest in runs/)] and an id of its report: "
                   "G-, C-, M-, P-, A-, D-, F-, S-..., or that of a table")
      ->required()
      ->expected(1, 2);
  teach(*explain,
        "  nsa-validate explain C-equivalence.v2\n"
        "  nsa-validate explain run.tar M-train_text.speed.rate_tok_s\n",
        "0, 2 no such run or id (the nearest is named), 6 results are damaged");
  CLI::App* report = add_command(
      app, o, "report", "Render a run again with this version; its raw evidence stays as it is");
  report->add_option("target", o.target, target_help)->required();
  teach(*report,
        "  nsa-validate report runs/smoke_cpu-TIME\n"
        "  nsa-validate report run.tar                      into the folder run, beside it\n",
        "0 rendered, 6 the evidence was changed");
  CLI::App* compare =
      add_command(app, o, "compare", "Two finished runs: criterion by criterion, figure by figure");
  compare->add_option("a", o.target, target_help)->required();
  compare->add_option("b", o.against, target_help)->required();
  compare->add_flag("--other-hardware", o.other_hardware,
                    "Compare runs of different machines, and state it in the first line");
  add_json_option(*compare, o);
  teach(*compare, "  nsa-validate compare runs/before runs/after\n",
        "0 compared, 2 different hardware, 6 one of them was changed");
  CLI::App* bundle = add_command(app, o, "bundle", "Pack a run folder into one deterministic tar");
  bundle->add_option("target", o.target, "Run folder")->required();
  auto* out = bundle->add_option("--out", o.out,
                                 "Tar to write (default TARGET.tar); NAME.tar.gz is compressed");
  bundle
      ->add_flag("--in-place", o.in_place,
                 "Leave what is rendered and the ledger, and pack every other file into "
                 "TARGET/evidence.tar.gz, which all commands read: for a repository")
      ->excludes(out);
  bundle->add_flag("--damaged", o.damaged, "Pack a run that does not verify, as it is");
  teach(*bundle,
        "  nsa-validate bundle runs/smoke_cpu-TIME --out run.tar.gz\n"
        "  nsa-validate bundle --in-place reports/samples/smoke_cpu\n",
        "0 packed (its sha256 is printed), 6 the run does not verify, 3 fault");
  CLI::App* schema =
      add_command(app, o, "schema", "JSON Schema of a file this program reads or writes");
  schema->add_option("name", o.name, "runbook, kind, results, plan, baseline or hardware")
      ->required();
  schema->add_flag("--page", o.page, "The reference page (Markdown) instead");
  teach(*schema,
        "  nsa-validate schema runbook > runbook.schema.json\n"
        "  nsa-validate schema runbook --page\n",
        "0, 2 no such document");
}

}  // namespace

bool parse_options(int argc, const char* const* argv, Options& options, int& exit_code) {
  options.command_line.assign(argv, argv + argc);
  CLI::App app{
      "Runs a runbook of validation phases and gives a go/no-go verdict with its evidence."};
  app.name("nsa-validate");
  app.formatter(std::make_shared<ShortFormatter>());
  app.get_formatter()->column_width(26);
  app.footer(kExamples);
  app.require_subcommand(0, 1);
  app.fallthrough(false);
  add_run_options(app, options);
  add_output_options(app, options);
  app.set_version_flag(
      "--version", [] { return version_text(program_dir()); }, "Build id and commit, then exit");
  app.add_flag("--quiet", options.quiet, "Print only the verdict");
  add_json_option(app, options);
  add_commands(app, options);
  app.failure_message([](const CLI::App* failed, const CLI::Error& e) {
    return CLI::FailureMessage::simple(
        failed, {e.get_name(), base::plain_text(e.what()), e.get_exit_code()});
  });
  try {
    app.parse(argc, argv);
    if (options.command == "run" && options.runbook.empty() && options.resume.empty())
      throw CLI::ValidationError(
          "nothing to do",
          "give --runbook NAME or a command; `nsa-validate list` shows the runbooks");
    if (options.dry_run) options.command = "plan";
    if (options.command == "explain") split_explain(options);
    return true;
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e) == 0 ? 0 : 2;
    return false;
  }
}

}  // namespace harness::cli
