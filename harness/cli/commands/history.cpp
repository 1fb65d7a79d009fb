#include "harness/history/history.h"

#include <cstdio>
#include <filesystem>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/verify.h"
#include "harness/history/promote.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

/// Commands that compare runs over time.
namespace harness::cli {
namespace fs = std::filesystem;
namespace {

/// Evidence head of a run that verifies. Throws EvidenceError for any other.
std::string proved_head(const fs::path& run) {
  const Verification found =
      verify(run, [](const Results& results) { return render_reports(results); });
  if (!found.ok()) throw EvidenceError(found.problems.front());
  return found.evidence_head;
}

History open_history(const Options& options) {
  if (!options.history.empty()) return History(options.history);
  const fs::path checkout = checkout_dir();
  return History((checkout.empty() ? fs::current_path() : checkout) / ".history.sqlite");
}

}  // namespace

/// Shows what the file would hold before it writes: a baseline decides the verdicts of later runs.
int baseline_promote_command(const Options& options) {
  const fs::path run = options.target;
  proved_head(run);
  const BaselineFile file = make_baseline(read_results(RunFolder(run)), options.reason);
  const fs::path to = baseline_path(configs_dir(options.configs), file.runbook, file.hardware);
  const bool replaces = fs::exists(to);
  const BaselineSet before = load_baseline(to, file.runbook, file.hardware);
  if (replaces && !before.problem.empty())
    std::printf("%s\n", base::plain_text(before.problem).c_str());
  std::printf("%s", promotion_text(before, file).c_str());
  const char* verb = replaces ? "replace" : "create";
  if (!options.write) {
    std::printf("nothing is written; --write would %s %s\n", verb,
                base::plain_text(to.string()).c_str());
    return 0;
  }
  fs::create_directories(to.parent_path());
  write_bytes(to, pretty_dump(to_json(file)));
  std::printf("%sd %s: %zu figures of build %.12s; review and commit it\n", verb,
              base::plain_text(to.string()).c_str(), file.metrics.size(), file.build_id.c_str());
  return 0;
}

/// Imports the runs that verify; a damaged one does not prevent the others, but sets the exit code.
int history_import_command(const Options& options) {
  for (const std::string& target : options.targets) require_path(target);
  History history = open_history(options);
  int exit_code = 0;
  for (const std::string& target : options.targets) {
    try {
      const std::string head = proved_head(target);
      const bool is_new = history.add(read_results(RunFolder(target)), head);
      std::printf("%s  %s\n", is_new ? "imported" : "known   ", base::plain_text(target).c_str());
    } catch (const EvidenceError& e) {
      std::printf("refused   %s\n", base::plain_text(target + ": " + e.what()).c_str());
      exit_code = 6;
    }
  }
  return exit_code;
}

int history_list_command(const Options& options) {
  for (const HistoryRun& run : open_history(options).runs())
    std::printf("%s  %-16s %-40s %-12.12s %s  %s\n", base::plain_text(run.started).c_str(),
                base::plain_text(run.runbook).c_str(), base::plain_text(run.hardware).c_str(),
                base::plain_text(run.build_id).c_str(), base::plain_text(run.verdict).c_str(),
                base::plain_text(run.id).c_str());
  return 0;
}

int history_trend_command(const Options& options) {
  const std::vector<Trend> trends = open_history(options).trends(options.metric);
  if (trends.empty())
    throw ConfigError("no run in the history has the metric '" + options.metric +
                      "'; import runs, and give its full name as `compare` and results.json do");
  for (const Trend& trend : trends) {
    std::printf("%s on %s\n", base::plain_text(trend.runbook).c_str(),
                base::plain_text(trend.hardware).c_str());
    for (size_t i = 0; i < trend.points.size(); ++i) {
      const HistoryPoint& point = trend.points[i];
      std::string step;
      for (const stats::Step& each : trend.steps)
        if (each.at == static_cast<int64_t>(i))
          step = "  <- step from " + format_number(each.before, 4) + " to " +
                 format_number(each.after, 4);
      std::printf("  %s  %.12s  %s %s%s\n", base::plain_text(point.run.started).c_str(),
                  base::plain_text(point.run.build_id).c_str(),
                  format_number(point.value, 4).c_str(), base::plain_text(point.unit).c_str(),
                  step.c_str());
    }
  }
  return 0;
}

}  // namespace harness::cli
