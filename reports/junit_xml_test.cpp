#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pugixml.hpp>

#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::CriterionVerdict;
using harness::Results;
using harness::Severity;
using harness::StepStatus;
using testing::HasSubstr;
using testing_data::criterion;
using testing_data::go;

struct Parsed {
  pugi::xml_document document;
  explicit Parsed(const Results& r) {
    const std::string text = render("junit.xml", r);
    EXPECT_TRUE(document.load_string(text.c_str())) << text;
  }
  pugi::xml_node root() const { return document.child("testsuites"); }
  pugi::xml_node suite(const char* name) const {
    return root().find_child_by_attribute("testsuite", "name", name);
  }
  /// Name of the element with the outcome of the case; empty when it passed.
  std::string outcome(const char* suite_name, const std::string& start) const {
    for (const pugi::xml_node test : suite(suite_name).children("testcase"))
      if (std::string(test.attribute("name").value()).starts_with(start))
        return test.first_child().name();
    return "no such case";
  }
};

TEST(JunitXml, SuiteIsAStepCaseIsACriterion) {
  const Parsed xml(go());
  EXPECT_EQ(xml.outcome("p", "P-p"), "");
  EXPECT_EQ(xml.outcome("p", "C-x"), "");
  EXPECT_EQ(xml.outcome("verdict", "verdict"), "system-out");
  EXPECT_EQ(xml.root().attribute("tests").as_int(), 3);
  EXPECT_EQ(xml.root().attribute("failures").as_int() + xml.root().attribute("errors").as_int(), 0);
  EXPECT_STREQ(xml.suite("p").child("properties").child("property").attribute("value").value(),
               "3");
}

TEST(JunitXml, PropertiesAreFiguresThatACriterionJudges) {
  Results r = go();
  r.metrics.push_back(r.metrics[0]);
  r.metrics.back().name = "p.other_count";
  const Parsed xml(r);
  const auto properties = xml.suite("p").child("properties").children("property");
  EXPECT_EQ(std::distance(properties.begin(), properties.end()), 1);
}

TEST(JunitXml, OutcomesOfCriteria) {
  Results r = go();
  r.criteria = {criterion("C-fail", CriterionVerdict::kFail),
                criterion("C-info", CriterionVerdict::kFail, Severity::kInfo),
                criterion("C-open", CriterionVerdict::kInconclusive),
                criterion("C-none", CriterionVerdict::kNotEvaluated)};
  for (const bool strict : {true, false}) {
    r.verdict.gate = strict ? "strict" : "advisory";
    const Parsed xml(r);
    EXPECT_EQ(xml.outcome("p", "C-fail"), "failure");
    EXPECT_EQ(xml.outcome("p", "C-info"), "skipped");
    EXPECT_EQ(xml.outcome("p", "C-open"), strict ? "error" : "skipped");
    EXPECT_EQ(xml.outcome("p", "C-none"), strict ? "error" : "skipped");
    EXPECT_EQ(xml.suite("p").attribute("failures").as_int(), 1);
    EXPECT_EQ(xml.suite("p").attribute("errors").as_int(), strict ? 2 : 0);
  }
}

TEST(JunitXml, OutcomesOfSteps) {
  Results r = go();
  const std::pair<StepStatus, const char*> table[] = {{StepStatus::kCompleted, ""},
                                                      {StepStatus::kFailed, "error"},
                                                      {StepStatus::kPartial, "error"},
                                                      {StepStatus::kDeferred, "skipped"},
                                                      {StepStatus::kNotRun, "skipped"}};
  for (const auto& [status, outcome] : table) {
    r.phases[0].status = status;
    EXPECT_EQ(Parsed(r).outcome("p", "P-p"), outcome) << outcome;
  }
  r.phases[0].status = StepStatus::kDeferred;
  r.criteria = {criterion("C-none", CriterionVerdict::kNotEvaluated)};
  EXPECT_EQ(Parsed(r).outcome("p", "C-none"), "skipped");
}

// A run of skipped steps alone must not look green.
TEST(JunitXml, VerdictSuiteIsRedUnlessTheExitCodeIsZero) {
  Results r = go();
  for (const auto& [exit, outcome] : std::map<int, std::string>{{0, "system-out"},
                                                                {1, "failure"},
                                                                {3, "error"},
                                                                {4, "error"},
                                                                {5, "error"},
                                                                {6, "error"},
                                                                {7, "error"}}) {
    r.verdict.exit = exit;
    EXPECT_EQ(Parsed(r).outcome("verdict", "verdict"), outcome) << exit;
  }
}

TEST(JunitXml, HostileTextIsStillXml) {
  Results r = go();
  r.phases[0].title = r.criteria[0].text = r.run.runbook =
      std::string("\x1b[31m<&\"'\x01\x00]]>\xff\xfe\uFFFE", 19);
  const Parsed xml(r);
  EXPECT_EQ(xml.root().attribute("tests").as_int(), 3);
  EXPECT_THAT(render("junit.xml", r), testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(render("junit.xml", r), testing::Not(HasSubstr("\x01")));
}

}  // namespace
}  // namespace reports
