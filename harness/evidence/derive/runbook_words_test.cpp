#include "harness/evidence/derive/runbook_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using testing::ElementsAre;

TEST(RunbookWords, NameCriteriaByTheirWholeIdsAndTheRunbookThatRan) {
  Runbook book;
  book.name = "mini";
  book.phases.resize(1);
  book.phases[0].criteria.resize(3);
  for (size_t i = 0; const char* id : {"C-a.one", "C-a.two", "C-b"})
    book.phases[0].criteria[i++].id = id;
  book.answer = {{.text = "all of a", .when = {"C-a.*"}, .otherwise = ""}};
  book.questions = {{.id = "G-b", .question = "b?", .decided_by = {"C-b"}, .says = ""}};
  book.next_steps = {{"again", "nsa-validate --runbook {runbook}", {"C-a.*"}}};
  Results results;
  add_runbook_words(book, results);
  ASSERT_EQ(results.answer.size(), 1U);
  EXPECT_THAT(results.answer[0].when, ElementsAre("C-a.one", "C-a.two"));
  ASSERT_EQ(results.questions.size(), 1U);
  EXPECT_THAT(results.questions[0].decided_by, ElementsAre("C-b"));
  ASSERT_EQ(results.next_steps.size(), 1U);
  EXPECT_THAT(results.next_steps[0].unless, ElementsAre("C-a.one", "C-a.two"));
  EXPECT_EQ(results.next_steps[0].command, "nsa-validate --runbook mini");
}

}  // namespace
}  // namespace harness
