#include "harness/runbook/checks/check_answers.h"

#include "harness/runbook/checks/check_testing.h"

namespace harness {
namespace {

using testing::HasSubstr;

/// The minimal runbook with an answer and a question; each test breaks it in one place.
nlohmann::json asking() {
  nlohmann::json book = minimal_json();
  book["answer"] = {{{"text", "v2 differs in {first.v2.mismatch_count} cases."},
                     {"when", {"C-first.*"}},
                     {"otherwise", "v2 is wrong in {first.v2.mismatch_count} cases."}}};
  book["questions"] = {{{"id", "G-right"},
                        {"question", "Is v2 right?"},
                        {"decided_by", {"C-first.v2"}},
                        {"says", "{first.v2.mismatch_count} differ"}}};
  return book;
}

std::string refused(const std::string& pointer, const nlohmann::json& value) {
  nlohmann::json book = asking();
  book[nlohmann::json::json_pointer(pointer)] = value;
  return TempConfigs().error_of(book.dump(1));
}

TEST(Answers, AreReadAndMayBeLeftOut) {
  const Runbook book = TempConfigs().load(asking().dump(1)).runbook;
  ASSERT_EQ(book.questions.size(), 1U);
  EXPECT_EQ(book.questions[0].id, "G-right");
  EXPECT_EQ(book.answer.at(0).when, std::vector<std::string>{"C-first.*"});
  EXPECT_TRUE(TempConfigs().load(minimal_text()).runbook.questions.empty());
}

TEST(Answers, ABadWordIsNamedWithItsPlaceAndRemedy) {
  const auto figure = refused("/answer/0/text", "{first.v2.mismatches_count}");
  EXPECT_THAT(figure, testing::StartsWith("minimal.json:"));
  EXPECT_THAT(figure, HasSubstr("no phase declares the metric 'first.v2.mismatches_count'; did "
                                "you mean 'first.v2.mismatch_count'?"));
  EXPECT_THAT(refused("/questions/0/says", "{x}"), HasSubstr("question 'G-right': says: no phase"));
  EXPECT_THAT(refused("/answer/0/otherwise", "{x}"), HasSubstr("no phase declares"));
  EXPECT_THAT(refused("/answer/0/when", {"C-furst.*"}), HasSubstr("no criterion is called so"));
  EXPECT_THAT(refused("/answer/0/when", nlohmann::json::array()), HasSubstr("never used"));
  EXPECT_THAT(refused("/questions/0/decided_by", nlohmann::json::array()),
              HasSubstr("a question without a criterion has no answer"));
  EXPECT_THAT(refused("/questions/0/decided_by", {"C-second.*"}),
              HasSubstr("criterion 'C-first.v2' decides the verdict and belongs to no question"));
  EXPECT_THAT(refused("/questions/0/id", "right"), HasSubstr("the id must be G-"));
  EXPECT_THAT(refused("/questions/0/question", "Is v2 right"), HasSubstr("must end with '?'"));
  EXPECT_THAT(refused("/goals", {"v2 is right"}), HasSubstr("write questions"));
  EXPECT_THAT(refused("/next_steps", {{{"text", "Run"}, {"unless", {"C-furst.*"}}}}),
              HasSubstr("next step: unless names 'C-furst.*', and no criterion is called so"));
  EXPECT_THAT(refused("/next_steps", {{{"text", "Run"}, {"command", "run {runbok}"}}}),
              HasSubstr("next step: command has '{runbok}'; only {runbook}"));
  EXPECT_THAT(refused("/answer", nlohmann::json::array()), HasSubstr("answer is missing"));
}

}  // namespace
}  // namespace harness
