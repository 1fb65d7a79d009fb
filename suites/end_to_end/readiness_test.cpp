// The way of a readiness run: from provenance over a short training to the gate, and what is behind
// it when it is open and when it is closed.
#include <gmock/gmock.h>

#include <algorithm>

#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

json by_id(const json& list, const std::string& id) {
  const auto found = std::ranges::find_if(list, [&](const json& item) { return item["id"] == id; });
  if (found == list.end()) throw std::runtime_error("no " + id);
  return *found;
}

Outcome run_steps(const std::string& book, const std::string& steps, const fs::path& dir,
                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"--runbook", book, "--only", steps, "--out", dir.string()};
  args.insert(args.end(), more.begin(), more.end());
  return validate(args);
}

/// The same runbook with another gate.
std::string with_gate(const std::string& name, const std::string& abort,
                      const std::string& proceed) {
  return changed_runbook(
      "readiness_small", name,
      {{R"("C-rate.abort", "value": 1)", R"("C-rate.abort", "value": )" + abort},
       {R"("C-rate.proceed", "value": 2)", R"("C-rate.proceed", "value": )" + proceed}});
}

TEST(Readiness, AnOpenGateLetsProductionStartAndContinue) {
  const fs::path dir = fresh_dir("readiness_open"),
                 checkpoints = fresh_dir("readiness_checkpoints");
  const std::vector<std::string> slice = {"--set", "production.checkpoints=" + checkpoints.string(),
                                          "--set", "production.resume=true"};
  const Outcome done = run_steps(runbook("readiness_small"),
                                 "smoke,rate_gate,production,hotspots,root_causes,gap_analysis,"
                                 "forecast",
                                 dir, slice);
  const json found = results(dir);
  const auto status = [&](const char* id) { return by_id(found["phases"], id)["status"]; };
  for (const char* id :
       {"P-smoke", "P-rate_gate", "P-production", "P-root_causes", "P-gap_analysis", "P-forecast"})
    EXPECT_EQ(status(id), "COMPLETED") << id << done.output;
  EXPECT_EQ(status("P-hotspots"), "DEFERRED") << "there is nothing to profile without a GPU";
  EXPECT_EQ(by_id(found["tables"], "rate_gate.decision")["rows"][0][0], "PROCEED");
  EXPECT_EQ(by_id(found["metrics"], "M-production.steps.done_count")["value"], 10);
  EXPECT_EQ(by_id(found["criteria"], "C-production.lr")["verdict"], "PASS");
  EXPECT_EQ(by_id(found["metrics"], "M-root_causes.factors.tried_count")["value"], 0);
  EXPECT_THAT(codes(dir), Not(Contains("RATE_GATE")));
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 0);

  const json gap = by_id(found["tables"], "gap_analysis.gap")["rows"];
  EXPECT_THAT(gap[0][4].get<std::string>(), HasSubstr("faster by x"));
  EXPECT_THAT(gap[1][4].get<std::string>(), HasSubstr("slower by x"));
  const json forecast = by_id(found["tables"], "forecast.forecast")["rows"];
  EXPECT_EQ(forecast[0][0], "time of 50,000 steps, h");
  EXPECT_NEAR(forecast[2][1].get<double>(), 2 * forecast[0][1].get<double>(),
              1e-3 * forecast[2][1].get<double>());
  EXPECT_LE(forecast[2][2].get<double>(), forecast[2][1].get<double>());
  EXPECT_GE(forecast[2][3].get<double>(), forecast[2][1].get<double>());

  // The next slice of the same long run.
  const fs::path next = fresh_dir("readiness_next");
  std::vector<std::string> more = slice;
  more.insert(more.end(), {"--set", "production.steps=16"});
  run_steps(runbook("readiness_small"), "smoke,rate_gate,production", next, more);
  EXPECT_EQ(by_id(results(next)["metrics"], "M-production.steps.done_count")["value"], 16);
  EXPECT_THAT(read_file(next / "phases/production/g01.err"), HasSubstr("resumed behind step 10"));
}

TEST(Readiness, AClosedGateKeepsProductionBackAndExplainsTheGap) {
  const fs::path dir = fresh_dir("readiness_closed");
  const Outcome done = run_steps(with_gate("readiness_slow", "1", "1e9"),
                                 "smoke,rate_gate,production,root_causes", dir);
  EXPECT_EQ(done.exit_code, 1) << done.output;
  const json found = results(dir);
  const json production = by_id(found["phases"], "P-production");
  EXPECT_EQ(production["status"], "NOT_RUN");
  EXPECT_EQ(production["cause"], "CRITERIA");
  EXPECT_THAT(production["reason"].get<std::string>(),
              HasSubstr("needs C-rate.proceed, which is FAIL: even the upper bound"));
  EXPECT_EQ(by_id(found["tables"], "rate_gate.decision")["rows"][0][0], "STOP");
  EXPECT_GE(by_id(found["metrics"], "M-root_causes.factors.tried_count")["value"], 1);
  EXPECT_THAT(codes(dir), testing::IsSupersetOf({"RATE_GATE", "GAP_ATTRIBUTED"}));
  EXPECT_THAT(read_file(dir / "report.md"), HasSubstr("needs C-rate.proceed, which is FAIL"));
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 0);

  // The same evidence, but as if production had run.
  const fs::path record = dir / "phases/production/phase.json";
  json claimed = json::parse(read_file(record));
  claimed["status"] = "COMPLETED";
  claimed["attempts"] = 1;
  write_file(record, claimed.dump());
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 6);
}

TEST(Readiness, NamesUndeclaredSwitchAndOtherCommit) {
  const fs::path dir = fresh_dir("readiness_named");
  const Outcome done = validate(
      {"--runbook", runbook("readiness_small"), "--only", "environment,checkout,configuration",
       "--set", "checkout.commit=0123abcd", "--out", dir.string()},
      {"NSA_USE_SEL_MASK=1"});
  const json found = results(dir);
  for (const char* id : {"P-checkout", "P-configuration"})
    EXPECT_EQ(by_id(found["phases"], id)["status"], "COMPLETED") << done.output;
  EXPECT_EQ(by_id(found["criteria"], "C-checkout.checked")["verdict"], "PASS") << done.output;
  EXPECT_EQ(by_id(found["criteria"], "C-checkout.commit")["verdict"], "FAIL");
  EXPECT_EQ(by_id(found["criteria"], "C-configuration.undeclared")["verdict"], "FAIL");
  EXPECT_THAT(codes(dir), testing::IsSupersetOf({"CONFIG_DRIFT", "PROVENANCE_MISMATCH"}));
  EXPECT_THAT(
      by_id(found["findings"], "F-configuration.CONFIG_DRIFT")["symptom"].get<std::string>(),
      HasSubstr("NSA_USE_SEL_MASK is 1"));
}

}  // namespace
}  // namespace suites::end_to_end
