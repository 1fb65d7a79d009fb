#include "harness/runbook/checks/args.h"

#include <cmath>

#include "harness/runbook/testing.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(ArgType, TakesItsValuesAndNoOthers) {
  const std::vector<std::pair<std::string, json>> one_of_each = {
      {"int", -3},     {"number", 2.5},         {"string", "text"},
      {"bool", false}, {"list", json::array()}, {"object", json::object()}};
  for (const auto& [type, unused] : one_of_each)
    for (const auto& [other, value] : one_of_each)
      EXPECT_EQ(arg_type_problem(type, value).empty(),
                type == other || (type == "number" && other == "int"))
          << type << " " << value;
}

TEST(ArgType, NumbersThatDoNotFitAreNone) {
  EXPECT_EQ(arg_type_problem("int", INT64_MAX), "");
  EXPECT_EQ(arg_type_problem("int", uint64_t{INT64_MAX} + 1),
            "must be an int, got '9223372036854775808'");
  EXPECT_EQ(arg_type_problem("int", 2.0), "must be an int, got '2.0'");
  EXPECT_ANY_THROW(arg_type_problem("number", std::nan(""))) << "no JSON, so nothing to quote";
}

TEST(ArgType, IsReportedInEnglish) {
  EXPECT_EQ(arg_type_problem("object", 1), "must be an object, got '1'");
  EXPECT_EQ(arg_type_problem("list", "x"), "must be a list, got '\"x\"'");
  EXPECT_THAT(arg_type_problem("no such type", 1), HasSubstr("must be a no such type"));
}

KindSpec kind_of_every_type() {
  KindSpec kind;
  kind.kind = "every";
  for (const auto& [name, type, value] :
       std::vector<std::tuple<std::string, std::string, json>>{{"steps", "int", 4},
                                                               {"rate", "number", 0.5},
                                                               {"data", "string", "7"},
                                                               {"graph", "bool", false},
                                                               {"arms", "list", {"v1"}},
                                                               {"shape", "object", {{"S", 1}}}}) {
    kind.args.emplace_back();
    kind.args.back().name = name;
    kind.args.back().type = type;
    kind.args.back().value = value;
  }
  return kind;
}

TEST(Defaults, FillWhatIsAbsentAndLeaveOutWhatIsNotDeclared) {
  const KindSpec kind = kind_of_every_type();
  EXPECT_EQ(with_defaults({{"rate", 2}, {"unknown", 1}}, kind), json({{"steps", 4},
                                                                      {"rate", 2},
                                                                      {"data", "7"},
                                                                      {"graph", false},
                                                                      {"arms", {"v1"}},
                                                                      {"shape", {{"S", 1}}}}));
}

/// A runbook with one phase of that kind, changed by `sets`.
struct Changed {
  explicit Changed(const std::vector<std::string>& sets) {
    const KindSpec kind = kind_of_every_type();
    runbook.name = "book";
    runbook.phases.emplace_back();
    runbook.phases[0].id = "first";
    runbook.phases[0].run = "nsa-worker:every";
    runbook.phases[0].free = {"graph"};
    deviations = apply_overrides(sets, {{"every", kind}}, runbook);
  }
  const json& args() const { return runbook.phases[0].args; }

  Runbook runbook;
  std::vector<Deviation> deviations;
};

TEST(Set, TakesTheTypeThatTheKindDeclares) {
  const Changed changed({"first.steps=8", "first.rate=1e-3", "first.data=8", "first.graph=true",
                         "first.arms=[\"a\",\"b\"]", "first.shape={\"S\":2}"});
  EXPECT_EQ(changed.args(), json({{"steps", 8},
                                  {"rate", 1e-3},
                                  {"data", "8"},
                                  {"graph", true},
                                  {"arms", {"a", "b"}},
                                  {"shape", {{"S", 2}}}}));
  ASSERT_EQ(changed.deviations.size(), 5u) << "graph is free";
  EXPECT_EQ(changed.deviations[2].what, "--set first.data=\"8\" (runbook: \"7\")");
  EXPECT_EQ(changed.deviations[2].why, "asked for on the command line");
}

TEST(Set, TheDefaultOfTheKindIsNoDeviation) {
  EXPECT_TRUE(Changed({"first.steps=4", "first.data=7"}).deviations.empty());
}

TEST(Set, HalfWordsAreNoOverrides) {
  for (const char* text : {"", "=", "first", "first.steps", ".steps=1", "first.=1", "first=1.5"})
    EXPECT_EQ(config_error_of([&] { Changed({text}); }),
              "--set '" + std::string(text) + "' must be phase.key=value");
  EXPECT_EQ(Changed({"first.data="}).args()["data"], "") << "an empty text is a text";
  EXPECT_THAT(config_error_of([] { Changed({"first.steps="}); }), HasSubstr("must be an int"));
}

/// More samples decide what was open; fewer would make a test weaker.
TEST(Set, RaisesTheBudgetOfAnAB) {
  const auto raised = [](int64_t processes, const std::string& to) {
    Runbook runbook;
    runbook.phases.emplace_back();
    runbook.phases[0].id = "first";
    runbook.phases[0].run = "nsa-worker:every";
    runbook.phases[0].processes = processes;
    runbook.phases[0].max_processes = 2 * processes;
    const auto deviations =
        apply_overrides({"first.max_processes=" + to}, {{"every", kind_of_every_type()}}, runbook);
    EXPECT_EQ(std::to_string(runbook.phases[0].max_processes), to);
    return deviations.at(0).what;
  };
  EXPECT_EQ(raised(10, "40"), "--set first.max_processes=40 (runbook: 20)");
  for (const char* to : {"20", "10", "1000", "many", "30.5", ""})
    EXPECT_THAT(config_error_of([&] { raised(10, to); }),
                HasSubstr("max_processes must be above the 20 of the runbook, at most 999"))
        << to;
  EXPECT_THAT(config_error_of([&] { raised(9, "500"); }), HasSubstr("too few to decide anything"));
  EXPECT_THAT(config_error_of([] { Changed({"first.max_processes=4"}); }),
              HasSubstr("declares no argument 'max_processes'"));
}

TEST(Set, TheSameKeyTwiceIsRefusedEvenWithOneValue) {
  EXPECT_THAT(config_error_of([] { Changed({"first.graph=true", "first.graph=true"}); }),
              HasSubstr("first.graph is set twice; keep one"));
}

}  // namespace
}  // namespace harness
