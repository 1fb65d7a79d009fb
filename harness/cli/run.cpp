#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "harness/builtin/builtins.h"
#include "harness/cli/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/planning.h"
#include "harness/cli/progress.h"
#include "harness/cli/rendering.h"
#include "harness/engine/engine.h"
#include "harness/evidence/ab_stages.h"
#include "harness/evidence/baselines.h"
#include "harness/evidence/bundle.h"
#include "harness/evidence/catch_matrix.h"
#include "harness/evidence/derive.h"
#include "harness/evidence/edition.h"
#include "harness/evidence/files.h"
#include "harness/evidence/plain_text.h"
#include "harness/evidence/run_files.h"
#include "harness/provenance/build_id.h"
#include "harness/provenance/environment.h"
#include "harness/provenance/gpu.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"
#include "harness/verdict/verdict.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

/// What is to run: planned now, or, resuming, read from the folder as it was planned then.
struct Work {
  Runbook runbook;
  Kinds kinds;
  Plan plan;
  RunOptions run;
};

/// What the self test of this build caught on this hardware becomes part of the evidence.
void attach_catch_matrix(RunOptions& run) {
  const std::string name = catch_matrix_name(run.environment);
  if (!name.empty() && fs::exists(matrices_dir() / name))
    run.attached["catch_matrix.json"] = read_bytes(matrices_dir() / name);
}

/// The reviewed baseline of this runbook on this hardware, or the one that is named, becomes part
/// of the evidence; whether it may be used is judged with the rest.
void attach_baseline(const Options& options, Work& work) {
  if (options.baseline == "none") return;
  const bool named = !options.baseline.empty();
  const fs::path file = named ? fs::path(options.baseline)
                              : baseline_path(configs_dir(options.configs), work.runbook.name,
                                              hardware_of(work.run.environment));
  if (named && !fs::is_regular_file(file))
    throw ConfigError("--baseline " + file.string() + ": no such file; name one, or none");
  if (fs::exists(file)) work.run.attached["baseline.json"] = read_bytes(file);
}

Work new_work(const Options& options) {
  Planned planned = plan_here(options);
  Work work{.runbook = planned.book.runbook,
            .kinds = planned.book.kinds,
            .plan = planned.plan,
            .run = {}};
  work.run.out = options.out.empty() ? new_run_folder(work.runbook.name) : fs::path(options.out);
  work.run.info.gate = options.gate;
  work.run.info.command_line = options.command_line;
  if (!options.supersedes.empty())
    follow_edition(RunFolder(options.supersedes), work.runbook.name, work.run.info,
                   work.run.attached);
  work.run.environment = environment(
      {.command_line = options.command_line, .seed = work.runbook.seed, .out = work.run.out});
  attach_catch_matrix(work.run);
  attach_baseline(options, work);
  return work;
}

Work resumed_work(const Options& options) {
  if (!options.supersedes.empty())
    throw ConfigError("--supersedes belongs to the start of a run; leave it out with --resume");
  std::error_code error;
  if (!fs::is_directory(options.resume, error))
    throw ConfigError("--resume " + options.resume +
                      ": no such run folder; start it without --resume");
  if (!fs::exists(fs::path(options.resume) / "run.json", error))
    throw ConfigError("--resume " + options.resume +
                      ": holds no run.json, so no run has begun there; remove the folder and start "
                      "again without --resume");
  const RunFiles files = read_run_files(RunFolder(options.resume));
  Work work{.runbook = files.runbook, .kinds = files.kinds, .plan = files.plan, .run = {}};
  work.run.out = options.resume;
  work.run.resume = true;
  work.run.info = files.run;
  work.run.environment = files.environment;
  return work;
}

void print_result(const Options& options, const Written& written, const fs::path& out) {
  const Verdict& verdict = written.results.verdict;
  if (options.json) {
    const nlohmann::json text = {
        {"verdict", to_json(verdict)}, {"run", written.results.run.id},
        {"out", out.string()},         {"report", (out / "report.md").string()},
        {"ledger_head", written.head}, {"evidence_head", written.evidence_head}};
    std::printf("%s\n", text.dump(2).c_str());
    return;
  }
  fmt::print("{}{}\n", verdict.word,
             verdict.gate == "advisory" ? " (advisory gate: the exit code does not block)" : "");
  if (options.quiet) return;
  fmt::print("  rule     {}\n", verdict.rule);
  if (!verdict.weakest.empty()) fmt::print("  weakest  {}\n", plain_text(verdict.weakest));
  for (const std::string& condition : verdict.conditions)
    fmt::print("  condition  {}\n", plain_text(condition));
  fmt::print("  scope    {}\n", plain_text(verdict.scope));
  for (const EvidenceError& problem : written.problems)
    fmt::print("  evidence {}\n", plain_text(problem.what()));
  fmt::print("  report   {}\n", (out / "report.md").string());
  fmt::print("  ledger   {}  (keep it: verify --head proves that nothing changed since)\n",
             written.head);
  fmt::print("  evidence {}  (the same for its raw part, whichever version renders it)\n",
             written.evidence_head);
}

}  // namespace

int run_command(const Options& options) {
  if (!options.torch.empty()) setenv("LD_LIBRARY_PATH", options.torch.c_str(), 1);
  Work work = options.resume.empty() ? new_work(options) : resumed_work(options);
  work.run.bin_dir = program_dir();
  work.run.asked = asked_groups;
  if (const auto built = read_build_id(program_dir())) work.run.build_id = built->id;
  if (work.plan.device != "cpu") {
    work.run.device_facts = [] { return to_json(list_gpus()); };
    work.run.device_held = [] { return held_text(list_gpus()); };
  }
  work.run.unmet_criteria = [out = work.run.out](const PlannedPhase& phase) {
    return unmet_criteria(phase.needs_criteria, derive(out).criteria);
  };
  const std::unique_ptr<Observer> progress = make_progress(options, work.plan);
  const RunReport report = run(work.run, work.runbook, work.kinds, work.plan,
                               builtin_phases({}, configs_dir(options.configs)), *progress);
  if (report.signal != 0) {
    fmt::print(stderr, "nsa-validate: interrupted; continue with: nsa-validate --resume {}\n",
               work.run.out.string());
    return 128 + report.signal;
  }
  const Written written = write_bundle(
      work.run.out,
      [&options](const Results& results) { return render_reports(results, options.formats); },
      [&options](const Results& results) { return draw_reports(results, options.formats); });
  print_result(options, written, work.run.out);
  return static_cast<int>(written.results.verdict.exit);
}

}  // namespace harness::cli
