#include "harness/bisect/trials.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/evidence/verify.h"
#include "harness/provenance/capture.h"
#include "harness/results/results.h"
#include "harness/schema/error.h"

namespace harness::bisect {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr double kBuildSeconds = 4 * 3600, kRunSeconds = 12 * 3600;
constexpr const char* kTrials = "trials.json";

/// Names the search that a folder belongs to.
json identity(const TrialPlan& plan) {
  return {{"runbook", plan.runbook},
          {"criterion", plan.criterion},
          {"good", plan.good},
          {"build", plan.build},
          {"more", plan.more}};
}

json to_json(const Trial& trial) {
  return {{"commit", trial.commit},
          {"outcome", to_string(trial.outcome)},
          {"reason", trial.reason},
          {"run", trial.run},
          {"measured", trial.measured}};
}

Trial from_json(const json& text) {
  Trial trial{.commit = text.at("commit"),
              .outcome = Outcome::kUndecided,
              .reason = text.at("reason"),
              .run = text.at("run"),
              .measured = text.at("measured")};
  const auto outcome = text.at("outcome").get<std::string>();
  for (const Outcome each : {Outcome::kGood, Outcome::kBad, Outcome::kNotBuilt})
    if (to_string(each) == outcome) trial.outcome = each;
  return trial;
}

/// The end of what a program answer, on one line.
std::string last_of(const std::string& text) {
  std::string end = text.substr(text.size() - std::min<size_t>(text.size(), 300));
  std::ranges::replace(end, '\n', ' ');
  return end;
}

/// The child stays in the program's process group, so that an interrupt ends both.
Captured run_long(const std::vector<std::string>& argv, double seconds) {
  return capture(
      argv, {.timeout_s = seconds, .with_stderr = true, .own_group = false, .max_out = 1 << 24});
}

Trial verdict_of(const Results& results, const std::string& criterion) {
  for (const CriterionResult& one : results.criteria) {
    if (one.id != criterion) continue;
    Trial trial{.commit = {},
                .outcome = one.verdict == CriterionVerdict::kPass   ? Outcome::kGood
                           : one.verdict == CriterionVerdict::kFail ? Outcome::kBad
                                                                    : Outcome::kUndecided,
                .reason = one.reason,
                .run = {}};
    for (const Metric& metric : results.metrics)
      if (metric.name == one.metric) trial.measured = metric.lo.has_value();
    return trial;
  }
  return {.commit = {},
          .outcome = Outcome::kUndecided,
          .reason = "the run has no criterion " + criterion,
          .run = {}};
}

}  // namespace

Trials::Trials(TrialPlan plan) : plan_(std::move(plan)) {
  fs::create_directories(plan_.work / "logs");
  if (!fs::exists(plan_.work / kTrials)) return;
  const json saved = json::parse(read_bytes(plan_.work / kTrials), nullptr, false);
  if (!saved.is_object() || !saved.contains("search") || !saved.contains("trials"))
    throw ConfigError("bisect: " + (plan_.work / kTrials).string() +
                      " is damaged; give another --work");
  if (saved["search"] != identity(plan_))
    throw ConfigError("bisect: " + plan_.work.string() + " holds another search (" +
                      saved["search"].value("criterion", "") + "); give another --work");
  for (const json& each : saved["trials"]) {
    const Trial trial = from_json(each);
    made_[trial.commit] = trial;
  }
}

Trial Trials::at(const std::string& commit) {
  const auto before = made_.find(commit);
  if (before != made_.end() && before->second.outcome != Outcome::kUndecided) return before->second;
  Trial trial;
  if (const std::string problem = build(commit); !problem.empty())
    trial = {.commit = {}, .outcome = Outcome::kNotBuilt, .reason = problem, .run = {}};
  else
    trial = run(commit);
  trial.commit = commit;
  made_[commit] = trial;
  save();
  return trial;
}

fs::path Trials::programs_of(const std::string& commit) const {
  return plan_.work / "bin" / commit;
}

/// Why there are no programs; empty where there are.
std::string Trials::build(const std::string& commit) const {
  const fs::path programs = programs_of(commit);
  if (fs::exists(programs)) return "";
  const fs::path tree = plan_.work / "tree";
  const Captured built = run_long(
      {"bash", "-c", "cd \"$1\" && exec bash -ec \"$2\"", "bash", tree.string(), plan_.build},
      kBuildSeconds);
  write_bytes(plan_.work / "logs" / (commit.substr(0, 12) + ".build.log"), built.out);
  if (!built.ok()) return "the build failed: " + last_of(built.out + built.problem);
  if (!fs::is_directory(tree / plan_.bin))
    return "the build left no programs in " + plan_.bin.string();
  const fs::path part = programs.string() + ".part";
  fs::remove_all(part);
  fs::create_directories(part.parent_path());
  fs::copy(tree / plan_.bin, part, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  fs::rename(part, programs);
  return "";
}

Trial Trials::run(const std::string& commit) const {
  Trial trial;
  for (int number = 1; number <= plan_.runs; ++number) {
    trial = run_once(commit, number);
    if (trial.outcome != Outcome::kUndecided) break;
  }
  return trial;
}

std::vector<std::string> Trials::call(const std::string& commit, const fs::path& out) const {
  const fs::path program = plan_.paired ? plan_.program : programs_of(commit) / "nsa-validate";
  std::vector<std::string> argv = {program.string(), "--runbook", plan_.runbook, "--only",
                                   plan_.phase,      "--quiet",   "--out",       out.string()};
  argv.insert(argv.end(), plan_.more.begin(), plan_.more.end());
  if (!plan_.paired) return argv;
  for (const auto& [arm, folder] :
       {std::pair{"base_bin", programs_of(plan_.good)}, {"head_bin", programs_of(commit)}}) {
    argv.emplace_back("--set");
    argv.push_back(plan_.phase + "." + arm + "=" + folder.string());
  }
  return argv;
}

Trial Trials::run_once(const std::string& commit, int number) const {
  const fs::path out = plan_.work / "runs" / (commit.substr(0, 12) + "-" + std::to_string(number));
  fs::remove_all(out);  // what an interrupted one left
  fs::create_directories(out.parent_path());
  const Captured ran = run_long(call(commit, out), kRunSeconds);
  try {
    Trial trial = verdict_of(read_results(RunFolder(out)), plan_.criterion);
    trial.run = out.string();
    return trial;
  } catch (const Error& problem) {
    return {.commit = {},
            .outcome = Outcome::kUndecided,
            .reason = "the run left no results: " + last_of(ran.out + ran.problem),
            .run = {}};
  }
}

void Trials::save() const {
  json trials = json::array();
  for (const auto& [commit, trial] : made_) trials.push_back(to_json(trial));
  write_bytes(plan_.work / kTrials, json({{"search", identity(plan_)}, {"trials", trials}})
                                            .dump(1, ' ', false, json::error_handler_t::replace) +
                                        "\n");
}

}  // namespace harness::bisect
