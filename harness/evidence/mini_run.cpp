#include "harness/evidence/mini_run.h"

#include <fstream>

#include "base/hash/sha256.h"
#include "base/protocol/messages.h"
#include "harness/runbook/plan/plan.h"
#include "harness/schema/write.h"

namespace harness {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

constexpr int kRounds = 4;
constexpr double kBaseClockMhz = 1800;

/// Without the fsync of evidence: a mini run is written many times and proves nothing.
void put(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  if (!(out << text << std::flush)) throw Error("cannot write " + file.string());
}

/// One raw evidence file, as a worker would have written it.
class RawFile {
 public:
  explicit RawFile(const std::string& device = "cpu") {
    emit(base::protocol::Hello{.program = "mini",
                               .build_id = "mini-build",
                               .pid = 1,
                               .device = device,
                               .versions = {{"mini", "1.0"}},
                               .switches = {{"NSA_SEL_RANGES_V2", "1", "config"}}});
  }
  template <class Line>
  void emit(const Line& line) {
    json object = base::protocol::to_object(line);
    object["type"] = std::string(Line::kType);
    object["t"] = 0.001 * static_cast<double>(lines_++);
    text_ += base::protocol::print_line(object) + "\n";
  }
  void write(const fs::path& file) {
    emit(base::protocol::Done{.lines = lines_});
    put(file, text_);
  }

 private:
  std::string text_;
  int64_t lines_ = 0;
};

CriterionSpec criterion(const std::string& id, const std::string& text, const std::string& metric,
                        const std::string& op, const json& value, const std::string& unit) {
  return {.id = id,
          .text = text,
          .metric = metric,
          .op = op,
          .value = value,
          .source = "",
          .unit = unit,
          .severity = Severity::kBlocker,
          .evidence = "samples"};
}

PhaseSpec conform_phase() {
  PhaseSpec phase;
  phase.id = "conform";
  phase.title = "Outputs equal the oracle";
  phase.run = "nsa-worker:mini_conform";
  phase.cases = {{.id = "even", .args = json::object()}, {.id = "odd", .args = json::object()}};
  phase.criteria = {criterion("C-CONFORM-RUN", "every check ran", "conform.oracle.checks_count",
                              "==", 6, "count"),
                    criterion("C-CONFORM", "no output differs", "conform.oracle.mismatch_count",
                              "==", 0, "count")};
  return phase;
}

int processes_of(const MiniRun& injected) {
  return injected.confirm || injected.max_processes > 0 ? 10 : 8;
}

PhaseSpec speed_phase(const MiniRun& injected) {
  PhaseSpec phase;
  phase.id = "speed";
  phase.title = "v2 is faster than v1";
  phase.run = "nsa-worker:mini_speed";
  phase.cases = {{.id = "speed", .args = json::object()}};
  phase.processes = processes_of(injected);
  phase.max_processes = injected.max_processes;
  phase.confirm = injected.confirm;
  phase.criteria = {criterion("C-SPEED", "v2 is at least 1.5 times as fast",
                              "speed.v2_vs_v1.speedup_ratio", ">=", 1.5, "ratio")};
  if (injected.criterion_on_baseline)
    phase.criteria.push_back(
        criterion("C-SPEED-BASE", "v2 is as fast as it was", "speed.v2.call_ms",
                  "<=", {{"baseline", "speed.v2.call_ms"}, {"factor", 1.1}}, "ms"));
  return phase;
}

PhaseSpec cards_phase() {
  PhaseSpec phase;
  phase.id = "cards";
  phase.title = "The same on a GPU";
  phase.run = "nsa-worker:mini_conform";
  phase.cases = {{.id = "even", .args = json::object()}};
  phase.require = {{"gpu.count", ">=1"}};
  phase.required = Required::kNo;
  return phase;
}

Runbook mini_runbook(const MiniRun& injected) {
  Runbook book;
  book.name = "mini";
  book.title = "Invented numbers";
  book.scope = "Nothing real.";
  book.next_steps = {{"Run it again", "nsa-validate --runbook {runbook}", {}}};
  book.history = {{{"metric", "speed.v2_vs_v1.speedup_ratio"},
                   {"value", 1.8},
                   {"unit", "ratio"},
                   {"source", "invented"}}};
  book.phases = {conform_phase(), speed_phase(injected), cards_phase()};
  return book;
}

MetricSpec metric(const std::string& name, const std::string& unit, const std::string& estimator,
                  const std::string& source, std::vector<std::string> arms = {}) {
  return {.name = name,
          .unit = unit,
          .estimator = estimator,
          .source = source,
          .arms = std::move(arms),
          .doc = "invented"};
}

Kinds mini_kinds() {
  KindSpec conform;
  conform.kind = "mini_conform";
  conform.program = "nsa-worker";
  conform.doc = "checks";
  conform.metrics = {metric("oracle.checks_count", "count", "checks_run", "oracle."),
                     metric("oracle.mismatch_count", "count", "checks_failed", "oracle."),
                     metric("rows_count", "count", "max", "")};
  KindSpec speed;
  speed.kind = "mini_speed";
  speed.program = "nsa-worker";
  speed.doc = "an A/B";
  speed.mode = "time";
  speed.settings = {{"v2", "MINI_V2=1"}};
  speed.metrics = {metric("v2_vs_v1.speedup_ratio", "ratio", "paired_ratio", "", {"v1", "v2"}),
                   metric("v2.call_ms", "ms", "median", "v2")};
  return {{conform.kind, conform}, {speed.kind, speed}};
}

void write_phase_end(const fs::path& folder, const std::string& status, const std::string& cause,
                     const std::string& reason) {
  put(folder / "phase.json", pretty_dump({{"phase", folder.filename().string()},
                                          {"status", status},
                                          {"cause", cause},
                                          {"reason", reason},
                                          {"seconds", 0.5},
                                          {"attempts", cause.empty() ? 1 : 0}}));
}

void write_conform(const fs::path& folder, const MiniRun& injected) {
  fs::create_directories(folder);
  if (!injected.conform_runs)
    return write_phase_end(folder, "NOT_RUN", "SKIPPED", "left out with --skip");
  RawFile raw;
  for (const char* one : {"even", "odd"}) {
    for (const char* part : {"cmp", "sel", "win"}) {
      const bool wrong =
          injected.mismatch && std::string(one) == "odd" && std::string(part) == "sel";
      raw.emit(base::protocol::Check{.case_id = one,
                                     .id = std::string("oracle.") + part,
                                     .ok = !wrong,
                                     .code = wrong ? "ORACLE_MISMATCH" : "",
                                     .detail = wrong ? "worst element 0.5" : ""});
    }
    raw.emit(
        base::protocol::Metric{.case_id = one, .name = "rows_count", .value = 64, .unit = "count"});
    const bool failed = std::string(one) == "odd" && !injected.case_reason.empty();
    raw.emit(base::protocol::CaseEnd{.case_id = one,
                                     .status = failed ? "failed" : "ok",
                                     .reason = failed ? injected.case_reason : ""});
  }
  raw.emit(base::protocol::Table{
      .id = "shapes",
      .title = "Shapes",
      .columns = {"case", "rows"},
      .rows = json::array({json::array({"even", 64}), json::array({"odd", 64})})});
  raw.write(folder / "g01.jsonl");
  write_phase_end(folder, "COMPLETED", "", "");
}

void write_speed(const fs::path& dir, const MiniRun& injected) {
  const fs::path folder = dir / "phases/speed";
  fs::create_directories(folder);
  for (int process = 1; process <= processes_of(injected); ++process)
    write_mini_process(dir, (process < 10 ? "g0" : "g") + std::to_string(process), injected);
  write_phase_end(folder, "COMPLETED", "", "");
}

json mini_environment() {
  return {{"machine", {{"cpu", {{"model", "Invented CPU"}}}}},
          {"gpu", {{"gpus", json::array()}}},
          {"libraries", {{"libtorch", "0.0"}}},
          {"build", {{"build_id", "mini-build"}}}};
}

}  // namespace

void write_mini_run(const fs::path& dir, const MiniRun& injected) {
  fs::create_directories(dir);
  const LoadedRunbook book{
      .runbook = mini_runbook(injected), .kinds = mini_kinds(), .deviations = {}, .file = ""};
  const PhaseSelection selection{.only = {},
                                 .skip = injected.conform_runs
                                             ? std::vector<std::string>{}
                                             : std::vector<std::string>{"conform"}};
  const std::string runbook = pretty_dump(to_json(book.runbook));
  RunInfo info;
  info.id = "mini-20250216T000000Z";
  info.runbook = "mini";
  info.runbook_sha256 = base::sha256_hex(runbook);
  info.command_line = {"nsa-validate", "--runbook", "mini"};
  info.started = "2025-02-16T00:00:00Z";
  info.seed = book.runbook.seed;
  put(dir / "run.json", pretty_dump(to_json(info)));
  put(dir / "runbook.json", runbook);
  put(dir / "kinds.json", pretty_dump(to_json(book.kinds)));
  put(dir / "plan.json", pretty_dump(to_json(make_plan(book, {}, selection))));
  put(dir / "environment.json", pretty_dump(mini_environment()));
  if (!injected.baseline.is_null()) put(dir / "baseline.json", pretty_dump(injected.baseline));
  write_conform(dir / "phases/conform", injected);
  write_speed(dir, injected);
}

void write_mini_process(const fs::path& dir, const std::string& group, const MiniRun& injected) {
  const int number = std::stoi(group.substr(1));
  RawFile raw;
  for (int round = 0; round < kRounds; ++round)
    for (int order = 0; order < 4; ++order) {  // ABBA
      const bool candidate = order == 1 || order == 2;
      const double noise = 1 + 0.001 * ((number * 7 + round * 3 + order) % 5);
      const bool clocked = injected.v2_clock_mhz > 0;
      const double clock = candidate && clocked ? injected.v2_clock_mhz : kBaseClockMhz;
      raw.emit(base::protocol::Sample{
          .case_id = "speed",
          .series = candidate ? "v2" : "v1",
          .value = (candidate ? 4 / injected.speedup : 4) * noise * kBaseClockMhz / clock,
          .unit = "ms",
          .round = round,
          .order = order,
          .clock_mhz = clocked ? std::optional(clock) : std::nullopt});
    }
  const double again = number % 2 == 0 ? injected.aa_factor : 1 / injected.aa_factor;
  for (int round = 0; round < kRounds; ++round)
    raw.emit(base::protocol::Sample{.case_id = "speed",
                                    .series = "v1.aa",
                                    .value = 4 * again * (1 + 0.001 * ((number * 5 + round) % 3)),
                                    .unit = "ms",
                                    .round = round,
                                    .order = 4});
  raw.emit(base::protocol::CaseEnd{.case_id = "speed"});
  raw.write(dir / "phases/speed" / (group + ".jsonl"));
}

json mini_baseline() {
  return {
      {"schema", "nsa-baseline/1"},
      {"runbook", "mini"},
      {"hardware",
       {{"sku", "Invented CPU"}, {"power_limit_w", 0}, {"driver_major", 0}, {"libtorch", "0.0"}}},
      {"build_id", "mini-build"},
      {"reason", "invented"},
      {"metrics", json::array({{{"metric", "speed.v2.call_ms"},
                                {"value", 2.0},
                                {"lo", 1.9},
                                {"hi", 2.1},
                                {"n", 8},
                                {"level", 0.99},
                                {"unit", "ms"}}})}};
}

std::map<std::string, std::string> render_mini_run(const Results& results) {
  std::string text = results.verdict.word + "\n";
  for (const CriterionResult& c : results.criteria)
    text += c.id + " " + std::string(enum_name(c.verdict)) + "\n";
  return {{"report.md", text}, {"summary.md", results.verdict.word + "\n"}};
}

Written finish_mini_run(const fs::path& dir, const MiniRun& injected) {
  write_mini_run(dir, injected);
  return write_bundle(dir, render_mini_run);
}

}  // namespace harness
