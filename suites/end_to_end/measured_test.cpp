// Phases that judge outputs before they time them: healthy on small sizes, and each one broken on
// purpose turns the verdict and leaves no speed behind.
#include <gmock/gmock.h>

#include <algorithm>

#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

json by_id(const json& list, const std::string& id) {
  const auto found = std::ranges::find_if(list, [&](const json& item) { return item["id"] == id; });
  return found == list.end() ? json() : *found;
}

TEST(Measured, HealthyPhasesAreGoWithFiguresAndTables) {
  const fs::path dir = fresh_dir("measured");
  const Outcome done = validate(
      {"--configs", configs_with_faults(), "--runbook", "measured", "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 0) << done.output;
  const json found = results(dir);
  for (const char* name :
       {"M-packing.forward.layers1_ms", "M-packing.backward.layers2_ms", "M-memory.gather.peak_mib",
        "M-memory.varlen.forward_ms", "M-checkpointing.on.pass_ms",
        "M-checkpointing.cost.overhead_pct", "M-checkpointing.saving.peak_pct"})
    EXPECT_TRUE(by_id(found["metrics"], name)["value"].is_number()) << name;
  EXPECT_EQ(by_id(found["tables"], "packing.scaling")["rows"].size(), 4u);
  EXPECT_EQ(by_id(found["tables"], "memory.memory")["rows"].size(), 8u);
  EXPECT_EQ(by_id(found["tables"], "checkpointing.checkpointing")["rows"].size(), 2u);
  EXPECT_EQ(by_id(found["tables"], "decode.decode")["rows"].size(), 5u);
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 0);
}

/// A library that was built for debugging is a deviation; how this machine's was built is recorded.
TEST(Measured, BenchmarksAreEvidence) {
  const fs::path dir = fresh_dir("benchmarks");
  const Outcome done = validate(
      {"--configs", configs_with_faults(), "--runbook", "benchmarks", "--out", dir.string()});
  const json found = results(dir);
  EXPECT_EQ(by_id(found["phases"], "P-rotation")["status"], "COMPLETED") << done.output;
  EXPECT_EQ(by_id(found["metrics"], "M-rotation.forward.rope_ms")["n"], 2);
  const json versions = by_id(found["tables"], "versions")["rows"];
  const auto library =
      std::ranges::find_if(versions, [](const json& row) { return row[0] == "Google Benchmark"; });
  ASSERT_NE(library, versions.end());
  const bool debug = (*library)[1] == "debug build";
  EXPECT_EQ(!by_id(found["deviations"], "D-library.rotation").is_null(), debug);
  EXPECT_EQ(done.exit_code, debug ? 7 : 0) << done.output;
}

struct Fault {
  const char *phase, *id, *code;
};

class BrokenMeasurement : public testing::TestWithParam<Fault> {};

TEST_P(BrokenMeasurement, IsNoGoWithItsCodeAndWithoutASpeed) {
  const auto& [phase, id, code] = GetParam();
  const fs::path dir = fresh_dir("measured_fault");
  const Outcome done =
      validate({"--configs", configs_with_faults(), "--runbook", "measured", "--only", phase,
                "--set", std::string(phase) + ".fault=" + id, "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 1) << done.output;
  EXPECT_THAT(done.output, HasSubstr("\nNO-GO\n"));
  EXPECT_THAT(codes(dir), Contains(code));
  const json found = results(dir);
  for (const json& metric : found["metrics"]) {
    const bool speed = metric["unit"] == "ms" || metric["unit"] == "pct";
    if (speed) {
      EXPECT_TRUE(metric["value"].is_null()) << metric["name"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, BrokenMeasurement,
                         testing::Values(Fault{"packing", "P06", "ORACLE_MISMATCH"},
                                         Fault{"decode", "P06", "ORACLE_MISMATCH"},
                                         Fault{"memory", "P06", "ORACLE_MISMATCH"},
                                         Fault{"rows", "empty_row_nan", "NON_FINITE"},
                                         Fault{"strict", "no_reroute", "PATH_PROOF"},
                                         Fault{"checkpointing", "other_tokens",
                                               "SPEEDUP_WITHHELD"}),
                         [](const auto& one) { return std::string(one.param.phase); });

TEST(Revisions, ALaterOneNamesTheOneBeforeAndComparesCriteria) {
  const fs::path dir = fresh_dir("revision_2");
  const Outcome done = validate({"--runbook", runbook("mini"), "--supersedes", mini_run().string(),
                                 "--skip", "gate_health", "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 8) << done.output;
  const json found = results(dir);
  EXPECT_EQ(found["run"]["revision"], "2");
  EXPECT_EQ(found["run"]["supersedes"].get<std::string>().size(), 64u);
  const std::string report = read_file(dir / "report.md");
  EXPECT_THAT(report, HasSubstr("## Revisions"));
  EXPECT_THAT(report, testing::ContainsRegex("C-gate.stuck.*PASS.*NOT_EVALUATED.*worse"));
  EXPECT_EQ(validate({"verify", dir.string()}).exit_code, 0);
}

TEST(Revisions, OfSomethingElseAreRefused) {
  const fs::path damaged = copy_of_mini_run("revision_damaged");
  fs::remove(damaged / "phases" / "equivalence" / "g01.jsonl");
  const auto supersede = [](const std::string& before) {
    return validate({"--runbook", runbook("mini"), "--supersedes", before, "--out",
                     fresh_dir("revision_none").string()});
  };
  EXPECT_EQ(supersede(damaged.string()).exit_code, 6);
  EXPECT_THAT(supersede(damaged.string()).output, HasSubstr("g01.jsonl: is missing"));
  EXPECT_EQ(supersede("/nonexistent").exit_code, 2);
  const Outcome other =
      validate({"--runbook", runbook("timed"), "--supersedes", mini_run().string(), "--out",
                fresh_dir("revision_none").string()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.output, HasSubstr("it is a run of 'mini', this is 'timed'"));
}

/// Without a GPU the phases on CUDA are deferred by name, those on the CPU run; undecided.
TEST(ShippedRunbook, CoreFixesRunsItsCpuPhasesAnywhere) {
  const json plan = json::parse(validate({"plan", "--json", "--runbook", "core_fixes"}).output);
  if (by_id(plan["phases"], "packing")["decision"] != "defer") {
    EXPECT_GE(plan["facts"]["gpu.count"], 1) << "not deferred, so there is a GPU";
    return;
  }
  const fs::path dir = fresh_dir("core_fixes");
  const Outcome done =
      validate({"--runbook", "core_fixes", "--skip", "selftest", "--out", dir.string()});
  EXPECT_EQ(done.exit_code, 5) << done.output;
  const json found = results(dir);
  for (const char* id : {"P-masked_cpu", "P-strict_cpu", "P-gate_init", "P-oracle"})
    EXPECT_EQ(by_id(found["phases"], id)["status"], "COMPLETED") << id;
  for (const char* id : {"P-masked", "P-strict", "P-packing", "P-tput_s2048_b1", "P-memory_b16"})
    EXPECT_EQ(by_id(found["phases"], id)["status"], "DEFERRED") << id;
  for (const json& criterion : found["criteria"]) {
    if (criterion["phase"] == "masked_cpu" || criterion["phase"] == "strict_cpu") {
      EXPECT_EQ(criterion["verdict"], "PASS") << criterion["id"] << criterion["reason"];
    }
  }
  EXPECT_EQ(by_id(found["tables"], "training")["rows"].size(), 8u);
}

}  // namespace
}  // namespace suites::end_to_end
