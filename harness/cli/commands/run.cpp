#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/planning.h"
#include "harness/cli/progress.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/cli/time_left.h"
#include "harness/cli/work.h"
#include "harness/evidence/bundle.h"
#include "harness/evidence/derive/ab_stages.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/derive/derive.h"
#include "harness/phases/builtin_phases.h"
#include "harness/provenance/allocation.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/gpu/gpu.h"
#include "harness/results/runbook_notice.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"
#include "harness/verdict/verdict.h"
#include "reports/answers.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

/// Earlier runs in the same folder give the best estimate of how long its phases take here.
TimeLeft time_left(const Work& work) {
  const std::string hardware = hardware_key(work.run.environment);
  const auto earlier =
      earlier_runs(fs::absolute(work.run.out).parent_path(), work.runbook.name, hardware);
  return TimeLeft(work.plan, measured_seconds(work.plan, earlier));
}

void print_result(const Options& options, const Written& written, const fs::path& out) {
  const Verdict& verdict = written.results.verdict;
  if (options.json) {
    const nlohmann::json text = {{"verdict", to_json(verdict)},
                                 {"run", written.results.run.id},
                                 {"out", out.string()},
                                 {"report", (out / "report.md").string()},
                                 {"ledger_head", written.head},
                                 {"evidence_head", written.evidence_head},
                                 {"notice", runbook_notice(written.results)}};
    std::printf("%s\n", text.dump(2).c_str());
    return;
  }
  fmt::print("{}{}\n", verdict.word,
             verdict.gate == "advisory" && verdict.exit == 0
                 ? " (advisory gate: the exit code does not block)"
                 : "");
  if (const std::string notice = runbook_notice(written.results); !notice.empty())
    fmt::print("  runbook  {}\n", base::plain_text(notice));
  if (options.quiet) return;
  if (const std::string answer = reports::answer_text(reports::Model(written.results));
      !answer.empty())
    fmt::print("  answer   {}\n", answer);
  fmt::print("  rule     {}\n", verdict.rule);
  if (!verdict.weakest.empty()) fmt::print("  weakest  {}\n", base::plain_text(verdict.weakest));
  for (const std::string& condition : verdict.conditions)
    fmt::print("  condition  {}\n", base::plain_text(condition));
  fmt::print("  scope    {}\n", base::plain_text(verdict.scope));
  for (const EvidenceError& problem : written.problems)
    fmt::print("  evidence {}\n", base::plain_text(problem.what()));
  fmt::print("  report   {}\n", base::plain_text((out / "report.md").string()));
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
  if (const auto built = read_build_id(program_dir())) {
    work.run.build_id = built->id;
    work.run.programs = built->contents;
  }
  work.run.nodes = allocated_nodes();
  if (work.plan.device != "cpu") {
    work.run.device_facts = [] { return to_json(list_gpus()); };
    work.run.device_held = [] { return held_text(list_gpus()); };
  }
  work.run.unmet_criteria = [out = work.run.out](const PlannedPhase& phase) {
    return unmet_criteria(phase.needs_criteria, derive(out).criteria);
  };
  if (const std::string chosen = selection_text(options.only, work.plan);
      !chosen.empty() && !options.quiet && !options.json)
    fmt::print(stderr, "phases: {}\n", base::plain_text(chosen));
  const std::unique_ptr<Observer> progress = make_progress(options, time_left(work));
  const RunReport report = run(work.run, work.runbook, work.kinds, work.plan,
                               builtin_phases({}, configs_dir(options.configs)), *progress);
  if (report.signal != 0) {
    fmt::print(stderr, "nsa-validate: interrupted; continue with: nsa-validate --resume {}\n",
               base::plain_text(work.run.out.string()));
    return 128 + report.signal;
  }
  const Written written = write_bundle(
      work.run.out,
      [&options](const Results& results) { return render_reports(results, options.formats); },
      [&options](const Results& results) { return draw_reports(results, options.formats); });
  keep_catch_matrix(work, written.results);
  print_result(options, written, work.run.out);
  return static_cast<int>(written.results.verdict.exit);
}

}  // namespace harness::cli
