#include "harness/runbook/checks/check.h"

#include <sys/stat.h>

#include <array>

#include "harness/runbook/checks/check_testing.h"

namespace harness {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class BadRunbook : public testing::TestWithParam<BadInput> {};

TEST_P(BadRunbook, IsRejectedByName) { expect_runbook_refused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Structure, BadRunbook,
    testing::Values(
        BadInput{"\"processes\"", "\"procesess\"",
                 "22:7: unknown key 'procesess' in phases[1]; did you mean 'processes'?"},
        BadInput{"\"processes\": 8", "\"processes\": 8, \"processes\": 3",
                 "22:23: duplicate key 'processes'"},
        BadInput{"\"processes\": 8", "\"processes\": \"two\"",
                 "22:20: phases[1].processes must be an integer"},
        BadInput{"\"run\": \"nsa-worker:ranges_ab\",", "",
                 "phases[1] lacks the required key 'run'"},
        BadInput{"\"warn\"", "\"wran\"",
                 "must be one of defer, fail, warn, got 'wran'; did you mean 'warn'?"},
        BadInput{"\"blocker\"", "\"blokcer\"", "did you mean 'blocker'?"},
        BadInput{"\"rounds\": 2", "\"rounds\": 1e999", "number overflow"},
        BadInput{"\"Two phases\"", "\"\xff\"", "UTF-8"}));

INSTANTIATE_TEST_SUITE_P(
    Needs, BadRunbook,
    testing::Values(
        BadInput{
            "\"needs\": [\"first\"]", "\"needs\": [\"frist\"]",
            "23:16: phase 'second' needs 'frist', which does not exist; did you mean 'first'?"},
        BadInput{"\"needs\": [\"first\"]", "\"needs\": [\"second\"]",
                 "in a cycle: second -> second"},
        BadInput{"\"run\": \"nsa-worker:ranges_equivalence\",",
                 "\"run\": \"nsa-worker:ranges_equivalence\", \"needs\": [\"second\"],",
                 "phases need each other in a cycle: first -> second -> first"},
        BadInput{"\"id\": \"second\"", "\"id\": \"first\"", "phase 'first' is given twice"}));

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
        BadInput{
            "\"processes\": 8", "\"processes\": 7",
            "phase 'second' plans 7 processes, and 'second.v2_vs_v1.speedup_ratio' (paired_ratio) "
            "has no 99 % interval with fewer than 8"},
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
                 "factor must be above 0"},
        BadInput{", \"source\": \"historical: 855\"", "",
                 "source must state where >= 1.5 ratio comes from: 'physical: ...', 'historical: "
                 "...' or 'oracle: ...', got ''"},
        BadInput{"historical: 855", "hearsay: 855", "got 'hearsay: 855'"},
        BadInput{"historical: 855", "historical: ", "got 'historical: '"},
        BadInput{"\"value\": 0", "\"value\": 0, \"source\": \"oracle: x\"",
                 "source belongs to numbers on a measured scale"},
        BadInput{"\"value\": 1.5",
                 "\"value\": {\"baseline\": \"second.v2_vs_v1.speedup_ratio\", \"factor\": 1}",
                 "source belongs to numbers on a measured scale"}));

INSTANTIATE_TEST_SUITE_P(
    Head, BadRunbook,
    testing::Values(BadInput{"\"minimal\"", "\"maximal\"",
                             "name 'maximal' must be that of the file, 'minimal'"},
                    BadInput{"nsa-runbook/1", "nsa-runbook/2", "schema must be 'nsa-runbook/1'"},
                    BadInput{"nothing but the tests of the loader", "", "scope must state"},
                    BadInput{"\"title\"", "\"device\": \"gpu\", \"title\"",
                             "device must be one of cpu, cuda"},
                    BadInput{"\"title\"", "\"seed\": -1, \"title\"", "seed must not be negative"},
                    BadInput{"\"title\"", "\"history\": [{\"metric\": \"x\"}], \"title\"",
                             "lacks the key 'value'"},
                    BadInput{"\"title\"", "\"history\": [5], \"title\"",
                             "history: an entry must be an object"}));

TEST(BadCriterion, WhatHoldsForEveryFigureDecidesNothing) {
  const TempConfigs configs;
  const auto error = [&](const char* op, double value) {
    auto document = minimal_json();
    document["phases"][0]["criteria"][0]["op"] = op;
    document["phases"][0]["criteria"][0]["value"] = value;
    return configs.error_of(document.dump());
  };
  EXPECT_THAT(error(">=", 0), HasSubstr(">= 0.0 holds for every figure in count"));
  EXPECT_THAT(error(">=", -3), HasSubstr("a criterion must be able to fail"));
  EXPECT_THAT(error(">", -1), HasSubstr("a criterion must be able to fail"));
  EXPECT_EQ(error(">", 0), "no error");
  EXPECT_EQ(error("<=", 0), "no error");
}

TEST(BadRunbookWhole, APipeIsRefusedAndNotWaitedFor) {
  const TempConfigs configs;
  const std::string pipe = configs.runbook("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(config_error_of([&] { load_runbook(pipe, configs.dir()); }),
              HasSubstr("cannot be read; want a file with JSON in it"));
}

TEST(BadRunbookWhole, AFileOfManyMegabytesIsNotRead) {
  const TempConfigs configs;
  EXPECT_THAT(configs.error_of(minimal_json().dump() + std::string(20 << 20, ' ')),
              HasSubstr("want at most 16 MiB"));
}

TEST(BadHistory, EntriesAreFiguresOfThisRunbook) {
  const TempConfigs configs;
  const nlohmann::json good = {{"metric", "second.v2_vs_v1.speedup_ratio"},
                               {"value", 1.2},
                               {"unit", "ratio"},
                               {"source", "somebody"}};
  const auto error = [&](const char* key, const nlohmann::json& value) {
    auto document = minimal_json();
    auto& entry = document["history"][0] = good;
    entry[key] = value;
    return configs.error_of(document.dump());
  };
  EXPECT_EQ(error("value", 1), "no error");
  EXPECT_THAT(error("date", "today"), HasSubstr("has the keys metric, value, unit and source"));
  EXPECT_THAT(error("metric", 5), HasSubstr("history: metric must be a string"));
  EXPECT_THAT(error("source", nullptr), HasSubstr("history: source must be a string"));
  EXPECT_THAT(error("value", "1.2"), HasSubstr("history: value must be a number"));
  EXPECT_THAT(error("unit", "ms"), HasSubstr("must end in _ms to agree with its unit"));
  EXPECT_THAT(error("metric", "second.v2_vs_v3.speedup_ratio"),
              HasSubstr("history: no phase declares the metric"));
}

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
  criterion.erase("source");
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("no phase declares the metric"));
  document["device"] = "cuda";
  const auto metrics_of = [&](const std::string& text) {
    return configs.load(text).kinds.at("ranges_ab").metrics.size();
  };
  EXPECT_EQ(metrics_of(document.dump()), metrics_of(minimal_text()) + 5)
      << "three counts of synchronisations, two ratios with a cold cache";
}

TEST(BadRunbookWhole, AKindOfOneDeviceRunsThere) {
  TempConfigs configs;
  auto document = minimal_json();
  document["phases"][0]["run"] = "nsa-worker:cpu_attention_ab";
  document["phases"][0].erase("args");
  document["device"] = "cuda";
  EXPECT_THAT(configs.error_of(document.dump()),
              HasSubstr("phase 'first': device must be cpu, where alone cpu_attention_ab runs, got "
                        "cuda; add \"device\": \"cpu\" to the phase"));
  document["phases"][0]["device"] = "cpu";
  EXPECT_THAT(configs.error_of(document.dump()), Not(HasSubstr("cpu_attention_ab")));
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
  criterion["value"] = true;
  criterion["op"] = ">=";
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("compared by == with true or false"));
}

TEST(BadRunbookWhole, PhasesAreAtMost999) {
  const TempConfigs configs;
  auto document = minimal_json();
  for (int i = 0; i < 997; ++i)
    document["phases"].push_back(
        {{"id", "p" + std::to_string(i)}, {"run", "nsa-worker:gate_health"}});
  EXPECT_EQ(configs.error_of(document.dump()), "no error");
  document["phases"].push_back({{"id", "last"}, {"run", "nsa-worker:gate_health"}});
  EXPECT_THAT(configs.error_of(document.dump()), HasSubstr("must be at most 999, got 1000"));
}

TEST(BadRunbookWhole, TheNameIsAPlainOne) {
  const TempConfigs configs;
  configs.write("runbooks/Minimal.json", with(minimal_text(), "\"minimal\"", "\"Minimal\""));
  EXPECT_THAT(config_error_of([&] { load_runbook("Minimal", configs.dir()); }),
              HasSubstr("name 'Minimal' must be lower case letters, digits and _"));
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

/// The minimal runbook whose second phase is for larger machines.
std::string with_size(const std::string& first, const std::string& second) {
  std::string text = minimal_text();
  text = with(text, "\"run\": \"nsa-worker:ranges_equivalence\",",
              "\"run\": \"nsa-worker:ranges_equivalence\", " + first);
  text = with(text, "\"require\": {\"gpu.free_mib\": \">=0\"}",
              "\"required\": \"by_size\", \"require\": {" + second + "}");
  return text;
}

TEST(BySize, NeedsASmallerSizeThatIsAskedOfEveryMachine) {
  const std::string four = "\"gpu.count\": \">=4\"", one = "\"require\": {\"gpu.count\": \">=1\"},";
  TempConfigs().load(with_size(one, four));
  for (const auto& [first, second, error] : std::initializer_list<std::array<std::string, 3>>{
           {one, "", "needs \"gpu.count\": \">=N\""},
           {one, "\"gpu.count\": 4", "needs \"gpu.count\": \">=N\""},
           {one, "\"gpu.count\": \">=1\"", "with N above 1"},
           {"", four, "asks for fewer GPUs"},
           {"\"require\": {\"gpu.count\": \">=4\"},", four, "asks for fewer GPUs"},
           {one + " \"required\": \"no\",", four, "asks for fewer GPUs"}})
    EXPECT_THAT(TempConfigs().error_of(with_size(first, second)), HasSubstr(error)) << first;
}

}  // namespace
}  // namespace harness
