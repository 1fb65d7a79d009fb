#include "harness/cli/options.h"

#include <filesystem>
#include <memory>

#include "base/options/command_line.h"
#include "base/options/refusal.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/commands/version.h"
#include "harness/cli/paths.h"

namespace harness::cli {
namespace {

constexpr const char* kExamples =
    "Exit codes: 0 GO, 7 CONDITIONAL GO, 8 PARTIAL (--only, --skip), 1 NO-GO, 4/5 undecided, "
    "6 evidence, 3 fault, 2 usage, 129/130/131/143 interrupted. "
    "Also: ab-rate, schema, witnesses.\n"
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
  std::error_code unreadable;
  if (!is_report_id(o.id) && std::filesystem::is_directory(o.id, unreadable))
    throw CLI::ValidationError(
        "explain " + o.id, "name an id of its report, too, such as M-environment.git.dirty_count");
}

/// Declares a command below its group, if it has one.
void declare_command(CLI::App& app, Options& o, const Command& command) {
  const std::string name = command.name;
  const size_t space = name.find(' ');
  const bool grouped = space != std::string::npos;
  CLI::App& above = grouped ? *app.get_subcommand(name.substr(0, space)) : app;
  CLI::App* added = above.add_subcommand(grouped ? name.substr(space + 1) : name, command.help);
  if (!command.listed) added->group("");
  if (command.run == nullptr)
    added->require_subcommand(1);
  else
    added->callback([&o, name] { o.command = name; });
  added->footer(std::string("Exit codes: ") + command.exit_codes + "\nExamples:\n" +
                command.examples);
  base::declare(*added, o, name);
}

void declare_all(CLI::App& app, Options& o) {
  for (const Command& command : commands())
    if (command.name == o.command)
      base::declare(app, o, command.name);
    else
      declare_command(app, o, command);
}

/// Whether a shipped runbook is called `word`.
bool is_runbook(const std::string& word) {
  if (word.empty() || word.find('/') != std::string::npos) return false;
  try {
    return std::filesystem::exists(configs_dir("") / "runbooks" / (word + ".json"));
  } catch (const std::exception&) {  // nothing is shipped, or a name is too long for a file
    return false;
  }
}

/// A runbook named without its option is told from other words that are not known.
std::string refusal(const CLI::App* app, const CLI::Error& error) {
  const std::string word = base::unexpected_word(*app);
  if (!is_runbook(word)) return base::plain_failure(app, error);
  return "'" + word + "' is a runbook; name it by --runbook " + word + "\n";
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
  app.set_version_flag(
      "--version", [] { return version_text(program_dir()); }, "Build id and commit, then exit");
  declare_all(app, options);
  app.failure_message(refusal);
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
