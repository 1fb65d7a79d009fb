// why A B: the difference between two runs, closed by their profiles.
#include <cmath>
#include <cstdio>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/rendering/gnuplot.h"
#include "harness/evidence/compare_runs.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/evidence/verify.h"
#include "harness/schema/error.h"
#include "harness/why/why.h"
#include "reports/markdown/difference_md.h"
#include "reports/plots/waterfall.h"

namespace harness::cli {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBars = 10;

struct Run {
  RunFolder folder;
  Results results;
};

Run whole_run(const std::string& path) {
  Run run{RunFolder(path), {}};
  const Verification found = verify_files(run.folder);
  if (!found.ok()) throw EvidenceError(found.problems.front());
  run.results = read_results(run.folder);
  return run;
}

/// The largest changes, then the others as one, then what the profiles leave unexplained.
reports::Waterfall waterfall_of(const Explanation& e) {
  const double from = e.a ? e.a->ms : NAN;
  reports::Waterfall w{.name = "why-" + e.phase,
                       .title = "A step of A, what changed, a step of B",
                       .from_ms = from,
                       .to_ms = from + e.measured_ms().value_or(NAN),
                       .changes = {}};
  double rest = 0;
  for (size_t i = 0; i < e.recorded.parts.size(); ++i) {
    const PartChange& change = e.recorded.parts[i];
    if (i < kBars)
      w.changes.emplace_back(change.name, change.delta_ms());
    else
      rest += change.delta_ms();
  }
  w.changes.emplace_back("all others", rest);
  w.changes.emplace_back("left unexplained", e.unexplained_ms().value_or(0));
  return w;
}

/// Draws a waterfall in the folder; Markdown of it, its table alone where nothing can be drawn.
std::string drawn_in(const fs::path& out, const reports::Waterfall& waterfall) {
  const reports::Plot plot = reports::waterfall_plot(waterfall);
  const auto drawings = draw({plot}, "gnuplot");
  fs::create_directories(out / "plots");
  for (const auto& [path, svg] : drawings) write_bytes(out / path, svg);
  return drawings.empty()
             ? "**" + plot.title + "** (no plot: gnuplot is not installed)\n\n" + plot.table + "\n"
             : reports::plot_markdown(plot);
}

nlohmann::json as_json(const Explanation& e) {
  const auto step = [](const std::optional<MeasuredStep>& x) {
    if (!x) return nlohmann::json();
    return nlohmann::json({{"ms", x->ms},
                           {"lo", x->lo ? nlohmann::json(*x->lo) : nlohmann::json()},
                           {"hi", x->hi ? nlohmann::json(*x->hi) : nlohmann::json()},
                           {"n", x->n}});
  };
  const auto left = e.unexplained_pct();
  return {{"phase", e.phase},
          {"file", e.file},
          {"a", step(e.a)},
          {"b", step(e.b)},
          {"not_decidable", e.not_decidable},
          {"recorded_delta_ms", e.recorded.delta_ms()},
          {"unexplained_pct", left ? nlohmann::json(*left) : nlohmann::json()},
          {"tables", difference_tables(e, SIZE_MAX)}};
}

}  // namespace

int why_command(const Options& options) {
  const Run a = whole_run(options.target), b = whole_run(options.against);
  if (const std::string other = hardware_difference(a.results, b.results); !other.empty())
    throw ConfigError("why: " + other + ": a profile of one machine does not explain another");
  const auto found = explain_difference(a.folder, a.results, b.folder, b.results, options.phase);
  const bool decided =
      std::ranges::all_of(found, [](const Explanation& e) { return e.not_decidable.empty(); });
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const Explanation& e : found) all.push_back(as_json(e));
    std::printf("%s\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return decided ? 0 : 5;
  }
  const fs::path out = options.out;
  std::vector<reports::Difference> differences;
  for (const Explanation& e : found)
    differences.push_back({e.phase, difference_text(e),
                           out.empty() || !e.unexplained_ms() ? "" : drawn_in(out, waterfall_of(e)),
                           difference_tables(e)});
  const std::string text =
      reports::render_difference_md(differences, surroundings_table(a.results, b.results));
  if (out.empty()) {
    std::printf("%s", text.c_str());
    return decided ? 0 : 5;
  }
  write_bytes(out / "why.md", text);
  std::printf("%s\n", base::plain_text((out / "why.md").string()).c_str());
  return decided ? 0 : 5;
}

}  // namespace harness::cli
