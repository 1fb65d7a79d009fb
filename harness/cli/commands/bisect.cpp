// bisect GOOD BAD --criterion C: the commit that turned a criterion.
#include "harness/bisect/search.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "base/text/plain_text.h"
#include "harness/bisect/trials.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/evidence/storage/files.h"
#include "harness/provenance/capture.h"
#include "harness/runbook/load.h"
#include "harness/schema/error.h"
#include "reports/markdown/search_md.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

/// The programs that judge and measure, with their build id.
std::string default_build() {
  return "export NSA_VENV=\"${NSA_VENV:-" + (checkout_dir() / ".venv").string() +
         "}\" CCACHE_BASEDIR=\"$PWD\" CCACHE_NOHASHDIR=1\n"
         "cmake --preset cpu -B build/gate -DNSA_VENV=\"$NSA_VENV\"\n"
         "cmake --build build/gate -j \"$(nproc)\" --target nsa_gate";
}

const PhaseSpec& phase_of(const LoadedRunbook& book, const std::string& criterion) {
  for (const PhaseSpec& phase : book.runbook.phases)
    for (const CriterionSpec& each : phase.criteria)
      if (each.id == criterion) return phase;
  throw ConfigError("bisect: runbook '" + book.runbook.name + "' has no criterion '" + criterion +
                    "'; nsa-validate list " + book.runbook.name + " shows its phases");
}

std::string subject_of(const fs::path& repository, const std::string& commit) {
  const Captured answer =
      capture({"git", "-C", repository.string(), "log", "-1", "--format=%s", commit});
  return base::plain_text(answer.out.substr(0, answer.out.find('\n')));
}

bisect::TrialPlan plan_of(const Options& options, const bisect::Range& range,
                          const fs::path& work) {
  const std::string name = options.runbook.empty() ? "pr_gate" : options.runbook;
  const LoadedRunbook book = load_runbook(name, configs_dir(options.configs));
  const PhaseSpec& phase = phase_of(book, options.criterion);
  bisect::TrialPlan plan{.work = work,
                         .program = fs::read_symlink("/proc/self/exe"),
                         .more = {},
                         .runbook = name,
                         .phase = phase.id,
                         .criterion = options.criterion,
                         .paired = parse_run(phase.run).kind == "binaries_ab",
                         .good = range.good,
                         .build = options.build.empty() ? default_build() : options.build};
  if (!options.bin.empty()) plan.bin = options.bin;
  if (!options.configs.empty()) plan.more = {"--configs", fs::absolute(options.configs).string()};
  for (const std::string& set : options.set) {
    plan.more.emplace_back("--set");
    plan.more.push_back(set);
  }
  return plan;
}

void print_progress(const bisect::Range& range, const std::string& commit, int64_t left) {
  const auto trials = static_cast<int64_t>(std::ceil(std::log2(static_cast<double>(left) + 1)));
  std::fprintf(stderr, "bisect: %ld commits may be the first bad one, about %ld trials; at %s %s\n",
               static_cast<long>(left), static_cast<long>(trials), commit.substr(0, 12).c_str(),
               subject_of(range.repository, commit).c_str());
}

std::string rendered(const Options& options, const bisect::Range& range,
                     const bisect::Found& found) {
  reports::SearchPage page{.criterion = options.criterion,
                           .first_bad = {},
                           .one_of = {},
                           .contradiction = found.contradiction,
                           .error_rate = found.error_rate,
                           .trials = {}};
  const auto named = [&](const std::string& commit) {
    return commit.substr(0, 12) + " " + subject_of(range.repository, commit);
  };
  if (!found.first_bad.empty()) page.first_bad = named(found.first_bad);
  for (const std::string& commit : found.one_of) page.one_of.push_back(named(commit));
  for (const bisect::Trial& trial : found.trials)
    page.trials.push_back(
        {named(trial.commit), bisect::to_string(trial.outcome), trial.reason, trial.run});
  return reports::render_search_md(page);
}

}  // namespace

int bisect_command(const Options& options) {
  const fs::path here = fs::current_path();
  bisect::Range range{.repository = here,
                      .tree = {},
                      .good = bisect::commit_of(here, options.target),
                      .bad = bisect::commit_of(here, options.against)};
  const std::string name = options.criterion + "-" + range.bad.substr(0, 12);
  const fs::path work = fs::absolute(options.work.empty() ? "runs/bisect-" + name : options.work);
  range.tree = work / "tree";
  bisect::Trials trials(plan_of(options, range, work));
  if (!capture({"git", "-C", here.string(), "diff", "--quiet", "HEAD"}).ok())
    std::fprintf(stderr,
                 "bisect: this checkout has changes that are in no commit: they are not "
                 "part of the search\n");
  const bisect::Found found = bisect::search(range, [&](const std::string& commit, int64_t left) {
    print_progress(range, commit, left);
    const bisect::Trial trial = trials.at(commit);
    std::fprintf(stderr, "bisect: %s is %s: %s\n", commit.substr(0, 12).c_str(),
                 bisect::to_string(trial.outcome).c_str(), base::plain_text(trial.reason).c_str());
    return trial;
  });
  const std::string page = rendered(options, range, found);
  write_bytes(work / "bisect.md", page);
  std::printf("%s", page.c_str());
  return found.first_bad.empty() || !found.contradiction.empty() ? 5 : 0;
}

}  // namespace harness::cli
