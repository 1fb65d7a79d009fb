#include "harness/runbook/witness.h"

#include <gmock/gmock.h>

#include "harness/runbook/testing.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json witness(const json& more) {
  json one = {{"metrics", {"v2.mismatch_count"}}, {"cause", "v2 is wrong"}};
  if (!more.empty()) one.update(more);
  return one;
}

std::string error_of(const json& one, const std::string& kind = "ranges_equivalence") {
  const TempConfigs configs;
  configs.write("witnesses/ranges_equivalence.json",
                json{{"kind", kind}, {"witnesses", {one}}}.dump());
  return config_error_of([&] { load_witnesses(configs.dir(), load_kinds(configs.dir())); });
}

TEST(Witness, IsSeenInExactlyOnePlace) {
  EXPECT_EQ(error_of(witness({{"test", "A.B"}})), "no error");
  EXPECT_EQ(error_of(witness({{"args", json::object()}})), "no error");
  EXPECT_THAT(error_of(witness(json::object())),
              HasSubstr("exactly one of args, test and recorded, got 0"));
  EXPECT_THAT(error_of(witness({{"test", "A.B"}, {"recorded", "run C-x"}})), HasSubstr("got 2"));
}

TEST(Witness, NamesWhatThereIs) {
  const json named = witness({{"test", "A.B"}});
  EXPECT_THAT(error_of(named, "ranges_equivalent"), HasSubstr("did you mean"));
  json other = named;
  other["metrics"] = {"v2.mismatches_count"};
  EXPECT_THAT(error_of(other), HasSubstr("did you mean 'v2.mismatch_count'?"));
  other["metrics"] = json::array();
  EXPECT_THAT(error_of(other), HasSubstr("metrics is empty"));
}

ShippedCriterion criterion(const std::string& metric, const std::string& op, const json& value) {
  ShippedCriterion one{.runbook = "r", .kind = "k", .metric = metric, .device = "cpu", .spec = {}};
  one.spec.op = op;
  one.spec.value = value;
  return one;
}

TEST(Witness, AppliesToItsFiguresItsFamilyItsOperatorAndItsThreshold) {
  Witness one;
  one.metrics = {"overhead.c512_pct"};
  EXPECT_TRUE(applies(one, criterion("overhead.c512_pct", "<", 5)));
  EXPECT_FALSE(applies(one, criterion("overhead.c1024_pct", "<", 5)));
  one.family = "overhead.c*_pct";
  EXPECT_TRUE(applies(one, criterion("overhead.c1024_pct", "<", 5)));
  one.op = ">";
  EXPECT_FALSE(applies(one, criterion("overhead.c512_pct", "<", 5)));
  one.op = "";
  one.value = 4;
  EXPECT_FALSE(applies(one, criterion("overhead.c512_pct", "<", 5)));
  EXPECT_TRUE(applies(one, criterion("overhead.c512_pct", "<", 4)));
}

TEST(Witness, TheRunbookOfThoseThatAreRunLoads) {
  const TempConfigs configs;
  const Kinds kinds = load_kinds(configs.dir());
  configs.write("runbooks/minimal.json", minimal_text());
  const auto criteria = shipped_criteria(configs.dir(), kinds);
  ASSERT_EQ(criteria.size(), 2u);
  Witness one;
  one.metrics = {"v2.mismatch_count"};
  one.cause = "cases whose ranges are others";
  one.args = {{"file", "wrong.jsonl"}};
  Witness elsewhere = one;
  elsewhere.device = "cuda";
  const json book =
      witness_runbook("small", "cpu", {{"ranges_equivalence", {elsewhere, one}}}, criteria, kinds);
  configs.write("runbooks/small.json", book.dump());
  const Runbook loaded = load_runbook("small", configs.dir()).runbook;
  ASSERT_EQ(loaded.phases.size(), 1u);
  EXPECT_EQ(loaded.phases[0].id, "ranges_equivalence_2");
  ASSERT_EQ(loaded.phases[0].criteria.size(), 1u);
  EXPECT_EQ(loaded.phases[0].criteria[0].metric, "ranges_equivalence_2.v2.mismatch_count");
  EXPECT_EQ(loaded.phases[0].criteria[0].value, 0);
}

TEST(Witness, ASmallRunIsHeldAgainstNoBaseline) {
  const json baseline = {{"baseline", "smoke.speed.rate_tok_s"}, {"factor", 0.95}};
  Witness one;
  one.metrics = {"speed.rate_tok_s"};
  EXPECT_TRUE(applies(one, criterion("speed.rate_tok_s", ">=", baseline)));
  one.args = json::object();
  EXPECT_FALSE(applies(one, criterion("speed.rate_tok_s", ">=", baseline)));
  EXPECT_TRUE(applies(one, criterion("speed.rate_tok_s", ">=", 300)));
}

}  // namespace
}  // namespace harness
