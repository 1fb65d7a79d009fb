#include "harness/runbook/check.h"

#include "harness/runbook/testing.h"

namespace harness {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// Each row breaks the minimal runbook in one place.
struct BadInput {
  const char* from;
  const char* to;
  const char* error;  ///< part of what() that must be there
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.from << " -> " << bad.to; }

class BadRunbook : public testing::TestWithParam<BadInput> {};

TEST_P(BadRunbook, IsRejectedByName) {
  const BadInput& bad = GetParam();
  const std::string error = TempConfigs().error_of(with(minimal_text(), bad.from, bad.to));
  EXPECT_THAT(error, StartsWith("minimal.json:")) << "no position";
  EXPECT_THAT(error, HasSubstr(bad.error));
}

INSTANTIATE_TEST_SUITE_P(
    Structure, BadRunbook,
    testing::Values(
        BadInput{"\"processes\"", "\"procesess\"",
                 "22:7: unknown key 'procesess' in phases[1]; did you mean 'processes'?"},
        BadInput{"\"processes\": 2", "\"processes\": 2, \"processes\": 3",
                 "22:23: duplicate key 'processes'"},
        BadInput{"\"processes\": 2", "\"processes\": \"two\"",
                 "22:20: phases[1].processes must be an integer"},
        BadInput{"\"run\": \"nsa-worker:ranges_ab\",", "",
                 "phases[1] lacks the required key 'run'"},
        BadInput{"\"warn\"", "\"wran\"",
                 "must be one of defer, fail, warn, got 'wran'; did you mean 'warn'?"},
        BadInput{"\"blocker\"", "\"blokcer\"", "did you mean 'blocker'?"},
        BadInput{"\"rounds\": 2", "\"rounds\": 1e999", "number overflow"},
        BadInput{"\"Two phases\"", "\"\xff\"", "UTF-8"}));

INSTANTIATE_TEST_SUITE_P(
    Stages, BadRunbook,
    testing::Values(
        BadInput{"\"processes\": 2", "\"processes\": 10, \"max_processes\": 19",
                 "must leave room for one doubling of processes (20 to 999), got 19"},
        BadInput{"\"processes\": 2", "\"processes\": 10, \"max_processes\": -1", "got -1"},
        BadInput{"\"processes\": 2", "\"processes\": 8, \"max_processes\": 16",
                 "too few to decide anything in one of 2 looks at 99 % together, got 8"},
        BadInput{"\"processes\": 2", "\"processes\": 2, \"confirm\": true", "too few"},
        BadInput{"\"run\": \"nsa-worker:ranges_equivalence\",",
                 "\"run\": \"nsa-worker:ranges_equivalence\", \"confirm\": true,",
                 "kind 'ranges_equivalence' declares no paired figure"}));

INSTANTIATE_TEST_SUITE_P(
    Phases, BadRunbook,
    testing::Values(
        BadInput{
            "\"needs\": [\"first\"]", "\"needs\": [\"frist\"]",
            "23:16: phase 'second' needs 'frist', which does not exist; did you mean 'first'?"},
        BadInput{"\"needs\": [\"first\"]", "\"needs\": [\"second\"]",
                 "in a cycle: second -> second"},
        BadInput{"\"run\": \"nsa-worker:ranges_equivalence\",",
                 "\"run\": \"nsa-worker:ranges_equivalence\", \"needs\": [\"second\"],",
                 "phases need each other in a cycle: first -> second -> first"},
        BadInput{"\"id\": \"second\"", "\"id\": \"first\"", "phase 'first' is given twice"},
        BadInput{"\"id\": \"second\"", "\"id\": \"Second|\"", "must be lower case"},
        BadInput{"nsa-worker:ranges_ab", "nsa-worker:range_ab",
                 "no phase kind 'range_ab' (configs/kinds); did you mean 'ranges_ab'?"},
        BadInput{"nsa-worker:ranges_ab", "builtin:ranges_ab", "runs in nsa-worker, not in builtin"},
        BadInput{"nsa-worker:ranges_ab", "nsa-wroker:ranges_ab", "did you mean 'nsa-worker'?"},
        BadInput{"nsa-worker:ranges_ab", "nsa-worker", "must be builtin:NAME"},
        BadInput{"nsa-worker:ranges_ab", "nsa-tests:", "must be builtin:NAME"},
        BadInput{"nsa-worker:ranges_ab", "nsa-train:x", "must be builtin:NAME"},
        BadInput{"\"rounds\": 2", "\"ruonds\": 2",
                 "19:16: second.args: kind 'ranges_ab' declares no argument 'ruonds'; did you mean "
                 "'rounds'?"},
        BadInput{"\"rounds\": 2", "\"rounds\": \"2\"",
                 "second.args.rounds must be an int, got '\"2\"'"},
        BadInput{"{\"rounds\": 2}", "[]", "second.args must be an object"},
        BadInput{"{\"S\": 64}", "{\"Z\": 64}", "second.small.args"},
        BadInput{"\"id\": \"small\"", "\"id\": \"../small\"", "case id '../small'"},
        BadInput{"\"free\": [\"B\"]", "\"free\": [\"Q\"]", "free names no argument 'Q'"},
        BadInput{"\"gpu.free_mib\"", "\"gpu.free\"", "did you mean 'gpu.free_mib'?"},
        BadInput{"\">=0\"", "\"lots\"", "comparison like"},
        BadInput{"\"processes\": 2", "\"processes\": 1000", "processes must be 1 to 999, got 1000"},
        BadInput{"\"processes\": 2", "\"timeout_s\": 0", "timeout_s must be above 0"},
        BadInput{"\"processes\": 2", "\"minutes\": -1", "minutes must not be negative"},
        BadInput{"\"processes\": 2", "\"device\": \"gpu\"", "device must be one of cpu, cuda"},
        BadInput{"\"processes\": 2", "\"retries\": -1", "retries must be 0 to 10, got -1"},
        BadInput{"\"processes\": 2", "\"artifacts\": [\"../x\"]",
                 "must be a path inside the run folder"},
        BadInput{"\"processes\": 2", "\"switches\": {\"PATH\": \"x\"}", "must be an NSA_* name"}));

INSTANTIATE_TEST_SUITE_P(
    Criteria, BadRunbook,
    testing::Values(
        BadInput{"first.v2.mismatch_count", "first.v2.mismatches_count",
                 "12:72: criterion 'C-first.v2': no phase declares the metric "
                 "'first.v2.mismatches_count'; did you mean 'first.v2.mismatch_count'?"},
        BadInput{"first.v2.mismatch_count", "nowhere.mismatch_count", "is not of the form"},
        BadInput{"\"unit\": \"count\"", "\"unit\": \"ms\"",
                 "must end in _ms to agree with its unit"},
        BadInput{"\"unit\": \"count\"", "\"unit\": \"pieces\"", "unit must be one of ms, us, s"},
        BadInput{"\"op\": \">=\"", "\"op\": \"=>\"", "op must be one of >=, <=, >, <, =="},
        BadInput{"\"op\": \">=\"", "\"op\": \"==\"", "== is for exact metrics"},
        BadInput{"\"evidence\": \"samples\"", "\"evidence\": \"sample\"",
                 "did you mean 'samples'?"},
        BadInput{"\"C-second.faster\"", "\"C-first.v2\"", "the id is given twice"},
        BadInput{"\"C-second.faster\"", "\"second.faster\"", "must be C- and"},
        BadInput{"\"value\": 1.5", "\"value\": \"1.5\"", "value must be a number"},
        BadInput{"\"value\": 1.5", "\"value\": {\"baseline\": \"second.v2_vs_v1.speedup_ratio\"}",
                 "lacks the required key 'factor'"},
        BadInput{"\"value\": 1.5",
                 "\"value\": {\"baseline\": \"second.v2.call_ms\", \"factor\": 1}",
                 "must end in _ratio"},
        BadInput{"\"value\": 1.5",
                 "\"value\": {\"baseline\": \"second.v2_vs_v1.speedup_ratio\", \"factor\": 0}",
                 "factor must be above 0"}));

INSTANTIATE_TEST_SUITE_P(
    Head, BadRunbook,
    testing::Values(BadInput{"\"minimal\"", "\"maximal\"",
                             "name 'maximal' must be that of the file, 'minimal'"},
                    BadInput{"nsa-runbook/1", "nsa-runbook/2", "schema must be 'nsa-runbook/1'"},
                    BadInput{"nothing but the tests of the loader", "", "scope must say"},
                    BadInput{"\"title\"", "\"device\": \"gpu\", \"title\"",
                             "device must be one of cpu, cuda"},
                    BadInput{"\"title\"", "\"seed\": -1, \"title\"", "seed must not be negative"},
                    BadInput{"\"title\"", "\"history\": [{\"metric\": \"x\"}], \"title\"",
                             "lacks the key 'value'"},
                    BadInput{"\"title\"", "\"history\": [5], \"title\"",
                             "history: an entry must be an object"}));

TEST(BadRunbookWhole, NothingToRunOrNothingToDecide) {
  TempConfigs configs;
  auto document = minimal_json();
  document["phases"][0]["criteria"] = document["phases"][1]["criteria"] = nlohmann::json::array();
  EXPECT_THAT(configs.error_of(document.dump()),
              HasSubstr("a run without a criterion decides nothing"));
  document["phases"] = nlohmann::json::array();
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("phases is empty"));
  EXPECT_THAT(configs.error_of(""), HasSubstr("minimal.json:1:1: is empty"));
  EXPECT_THAT(configs.error_of(minimal_text().substr(0, 400)), HasSubstr("not valid JSON"));
}

TEST(BadRunbookWhole, FiguresOfAnotherDeviceDoNotExist) {
  TempConfigs configs;
  auto document = minimal_json();
  auto& criterion = document["phases"][1]["criteria"][0];
  criterion["metric"] = "second.hostsync.v2_count";
  criterion["unit"] = "count";
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("no phase declares the metric"));
  document["device"] = "cuda";
  const auto metrics_of = [&](const std::string& text) {
    return configs.load(text).kinds.at("ranges_ab").metrics.size();
  };
  EXPECT_EQ(metrics_of(document.dump()), metrics_of(minimal_text()) + 5)
      << "three counts of synchronisations, two ratios with a cold cache";
}

TEST(BadRunbookWhole, BoolMetricsTakeBools) {
  TempConfigs configs;
  auto document = minimal_json();
  document["phases"][0]["run"] = "builtin:environment";
  auto& criterion = document["phases"][0]["criteria"][0];
  criterion["metric"] = "first.build.id_matches_bool";
  criterion["unit"] = "bool";
  criterion["value"] = true;
  EXPECT_EQ(configs.error_of(document.dump()), "no error");
  criterion["value"] = 1;
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("compared by == with true or false"));
}

TEST(BadRunbookWhole, NeededCriteriaAreThoseOfEarlierPhases) {
  TempConfigs configs;
  auto document = minimal_json();
  auto& needed = document["phases"][1]["needs_criteria"];
  needed = {"C-first.v2"};
  EXPECT_EQ(configs.error_of(document.dump()), "no error");
  needed = {"C-first.v3"};
  EXPECT_THAT(
      configs.error_of(document.dump()),
      HasSubstr("phase 'second' needs the criterion 'C-first.v3', which does not exist; did "
                "you mean 'C-first.v2'?"));
  needed = {"C-second.faster"};
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("needs its own criterion"));
  // A criterion of another phase that rests on a figure of this one.
  needed = {"C-first.v2"};
  document["phases"][0]["criteria"][0]["metric"] = "second.arms.mismatch_count";
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("needs its own criterion"));
}

TEST(BadRunbookWhole, AnUnchangedMinimalIsGood) {
  EXPECT_EQ(TempConfigs().error_of(minimal_text()), "no error");
}

TEST(BadRunbookWhole, TheSameIdTwiceIsNotHiddenByMerging) {
  TempConfigs configs;
  configs.write("runbooks/base.json", with(minimal_text(), "\"minimal\"", "\"base\""));
  EXPECT_THAT(configs.error_of(R"({"schema": "nsa-runbook/1", "name": "minimal", "extends": "base",
    "phases": [{"id": "first"}, {"id": "first"}]})"),
              EndsWith(":2:40: phase 'first' is given twice"));
}

class BadKind : public testing::TestWithParam<BadInput> {};

TEST_P(BadKind, IsRejectedByName) {
  TempConfigs configs;
  const auto text = file_text(source_path("configs/kinds/ranges_ab.json"));
  configs.write("kinds/ranges_ab.json", with(text, GetParam().from, GetParam().to));
  const std::string error = config_error_of([&] { load_kinds(configs.dir()); });
  EXPECT_THAT(error, HasSubstr("kinds/ranges_ab.json:")) << "no position";
  EXPECT_THAT(error, HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BadKind,
    testing::Values(
        BadInput{"\"kind\": \"ranges_ab\"", "\"kind\": \"ab\"", "must be named like its file"},
        BadInput{"\"nsa-worker\"", "\"worker\"", "program must be one of"},
        BadInput{"\"mode\": \"time\"", "\"mode\": \"timed\"", "did you mean 'time'?"},
        BadInput{"\"minutes\": 0.05", "\"minutes\": 0", "minutes must be above 0"},
        BadInput{"\"type\": \"int\"", "\"type\": \"integer\"", "type must be one of int, number"},
        BadInput{"\"default\": 2", "\"default\": \"2\"", "argument 'B': default must be an int"},
        BadInput{"\"name\": \"S\"", "\"name\": \"B\"", "'B' is declared twice"},
        BadInput{"\"median\"", "\"medain\"", "did you mean 'median'?"},
        BadInput{"\"name\": \"v1.call_ms\"", "\"name\": \"v1.call_us\"", "must end in _ms"},
        BadInput{"\"device\": \"cuda\"", "\"device\": \"gpu\"", "device must be one of cpu, cuda"},
        BadInput{"[\"v1\", \"v2\"]", "[\"v1\"]", "paired_ratio takes 2 arms, got 1"}));

INSTANTIATE_TEST_SUITE_P(
    Tables, BadKind,
    testing::Values(
        BadInput{
            "\"metrics\": [",
            R"("tables": [{"id": "t", "title": "T", "columns": ["a", "b"], "rows": [["=v1.call_ms"]]}], "metrics": [)",
            "table 't': a row has 1 cells, want 2"},
        BadInput{
            "\"metrics\": [",
            R"("tables": [{"id": "t", "title": "T", "columns": ["a"], "rows": [["=v3.call_ms"]]}], "metrics": [)",
            "table 't': no metric 'v3.call_ms'; did you mean 'v1.call_ms'?"},
        BadInput{
            "\"metrics\": [",
            R"("tables": [{"id": "T", "title": "T", "columns": [], "rows": []}], "metrics": [)",
            "the id must be lower case"}));

}  // namespace
}  // namespace harness
