#include <fmt/format.h>

#include <cstdio>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/progress_text.h"
#include "harness/runbook/checks/names.h"
#include "harness/runbook/load.h"

namespace harness::cli {
namespace {

constexpr size_t kColumns = 100;

/// Headings in the order in which `list` shows them: what users run comes first.
constexpr auto kHeadings = std::to_array<std::pair<RunbookUse, const char*>>(
    {{RunbookUse::kCpu, "On a CPU"},
     {RunbookUse::kGpu, "One GPU"},
     {RunbookUse::kTwoGpus, "Two GPUs"},
     {RunbookUse::kPullRequest, "Pull requests"},
     {RunbookUse::kOther, "Others"},
     {RunbookUse::kInstrument, "The instrument's own checks"}});

nlohmann::json describe(const Runbook& book) {
  nlohmann::json phases = nlohmann::json::array();
  for (const PhaseSpec& phase : book.phases) phases.push_back(phase.id);
  return {{"name", book.name},     {"title", book.title},       {"use", enum_name(book.use)},
          {"device", book.device}, {"hardware", book.hardware}, {"phases", phases}};
}

void print_line(const std::string& line) {
  fmt::print("{}\n", fit(base::plain_text(line), kColumns));
}

void print_all(const std::vector<Runbook>& books) {
  for (const auto& [use, heading] : kHeadings) {
    bool first = true;
    for (const Runbook& book : books) {
      if (book.use != use) continue;
      if (std::exchange(first, false)) fmt::print("{}\n", heading);
      print_line(fmt::format("  {:<21} {}", book.name, book.title));
    }
  }
  fmt::print(
      "\nnsa-validate list NAME shows scope and phases; plan --runbook NAME what runs here\n");
}

bool needs_gpu(const Runbook& book, const PhaseSpec& phase) {
  return parse_run(phase.run).program != "builtin" && book.device_of(phase) == "cuda";
}

/// "GPU", "gpu.count >=2", ...; empty: any machine will do.
std::string hardware_of(const Runbook& book, const PhaseSpec& phase) {
  const auto count = phase.require.find("gpu.count");
  if (count != phase.require.end())
    return count->second.is_string() ? "GPUs " + count->second.get<std::string>() : "GPU";
  return needs_gpu(book, phase) ? "GPU" : "";
}

void print_one(const LoadedRunbook& loaded) {
  const Runbook& book = loaded.runbook;
  fmt::print("{}: {}\nscope: {}\n", book.name, base::plain_text(book.title),
             base::plain_text(book.scope));
  if (!book.hardware.empty()) fmt::print("expects {}\n", base::plain_text(book.hardware));
  for (const PhaseSpec& phase : book.phases) {
    const double each =
        phase.minutes > 0 ? phase.minutes : loaded.kinds.at(parse_run(phase.run).kind).minutes;
    print_line(fmt::format("  {:<18} {:>6.1f} min  {:<8} {}", phase.id,
                           each * static_cast<double>(phase.processes), hardware_of(book, phase),
                           phase.title));
  }
}

}  // namespace

int list_command(const Options& options) {
  const auto configs = configs_dir(options.configs);
  if (!options.name.empty() && !options.json) {
    print_one(load_runbook(options.name, configs));
    return 0;
  }
  std::vector<Runbook> books;
  for (const std::string& name : list_runbooks(configs))
    if (options.name.empty() || name == options.name)
      books.push_back(load_runbook(name, configs).runbook);
  if (!options.json) {
    print_all(books);
    return 0;
  }
  nlohmann::json all = nlohmann::json::array();
  for (const Runbook& book : books) all.push_back(describe(book));
  std::printf("%s\n", all.dump(2).c_str());
  return 0;
}

}  // namespace harness::cli
