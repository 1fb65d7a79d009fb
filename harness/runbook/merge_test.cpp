#include "harness/runbook/merge.h"

#include <gtest/gtest.h>

#include "harness/runbook/plan/graph.h"

namespace harness {
namespace {

using nlohmann::json;

TEST(Merge, ObjectsByKeyPhasesAndCriteriaById) {
  const json base = json::parse(R"({"title": "a", "switches": {"X": "1", "Y": "2"}, "phases": [
    {"id": "p", "args": {"k": 1, "l": [1, 2]}, "criteria": [{"id": "C-a", "value": 1},
    {"id": "C-b", "value": 2}]}, {"id": "q"}]})");
  const json child = json::parse(R"({"switches": {"Y": "3"}, "phases": [
    {"id": "p", "args": {"l": [9]}, "criteria": [{"id": "C-b", "value": 5}, {"id": "C-c"}]},
    {"id": "r"}]})");
  EXPECT_EQ(merge_runbooks(base, child), json::parse(R"({"title": "a",
    "switches": {"X": "1", "Y": "3"}, "phases": [{"id": "p", "args": {"k": 1, "l": [9]},
    "criteria": [{"id": "C-a", "value": 1}, {"id": "C-b", "value": 5}, {"id": "C-c"}]},
    {"id": "q"}, {"id": "r"}]})"));
}

TEST(Merge, NothingIsLostAndNothingChangedWithoutAChild) {
  const json base = json::parse(R"({"phases": [{"id": "p"}], "x": {"y": null}})");
  EXPECT_EQ(merge_runbooks(base, json::object()), base);
  EXPECT_EQ(merge_runbooks(json::object(), base), base);
  EXPECT_EQ(merge_runbooks(base, {{"x", nullptr}})["x"], nullptr);
}

Runbook book_of(const std::vector<std::pair<std::string, std::vector<std::string>>>& phases) {
  Runbook book;
  for (const auto& [id, needs] : phases) {
    PhaseSpec& phase = book.phases.emplace_back();
    phase.id = id;
    phase.needs = needs;
  }
  return book;
}

TEST(Order, NeedsComeFirstElseAsWritten) {
  const auto found = order_phases(book_of({{"a", {"c"}}, {"b", {}}, {"c", {}}, {"d", {"a", "?"}}}));
  EXPECT_EQ(found.order, (std::vector<size_t>{2, 0, 1, 3}));
  EXPECT_TRUE(found.cycle.empty());
}

TEST(Order, ACycleIsGivenWhole) {
  const auto found = order_phases(book_of({{"a", {}}, {"b", {"c"}}, {"c", {"d"}}, {"d", {"b"}}}));
  EXPECT_TRUE(found.order.empty());
  EXPECT_EQ(found.cycle, (std::vector<size_t>{1, 2, 3}));
  EXPECT_EQ(order_phases(book_of({{"a", {"a"}}})).cycle, (std::vector<size_t>{0}));
}

TEST(Order, AnEmptyBookHasAnEmptyOrder) {
  EXPECT_TRUE(order_phases({}).order.empty());
  EXPECT_TRUE(order_phases({}).cycle.empty());
}

}  // namespace
}  // namespace harness
