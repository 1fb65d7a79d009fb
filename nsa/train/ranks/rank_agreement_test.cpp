// Messages about ranks that were not started alike.
#include "nsa/train/ranks/rank_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nsa::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const RankSettings kSettings = {{"lr", "0.003"}, {"NSA_DDP_BUCKET_MB", "25"}, {"seed", "1"}};

RankSettings with(const std::string& name, const std::string& value) {
  RankSettings settings = kSettings;
  settings[name] = value;
  return settings;
}

TEST(RankAgreement, EqualSettingsAgree) {
  EXPECT_EQ(describe_disagreement({}), "");
  EXPECT_EQ(describe_disagreement({kSettings}), "");
  EXPECT_EQ(describe_disagreement({kSettings, kSettings, kSettings}), "");
}

TEST(RankAgreement, NamesRankOptionBothValuesAndRemedy) {
  EXPECT_EQ(describe_disagreement({kSettings, with("lr", "0.1")}),
            "RANK_FAULT: the ranks were not started alike: option lr is 0.003 on rank 0 and 0.1 on "
            "rank 1; start every rank with the same options, switches and corpus");
  EXPECT_THAT(describe_disagreement({kSettings, with("NSA_DDP_BUCKET_MB", "50")}),
              HasSubstr("switch NSA_DDP_BUCKET_MB is 25 on rank 0 and 50 on rank 1"));
  EXPECT_THAT(describe_disagreement({kSettings, with("seed", "")}),
              HasSubstr("option seed is 1 on rank 0 and \"\" on rank 1"));
}

TEST(RankAgreement, NamesEveryRankThatDiffersAndNoOther) {
  EXPECT_THAT(
      describe_disagreement({kSettings, kSettings, with("seed", "2"), with("lr", "1")}),
      AllOf(HasSubstr("option seed is 1 on rank 0 and 2 on rank 2"),
            HasSubstr("option lr is 0.003 on rank 0 and 1 on rank 3"), Not(HasSubstr("rank 1"))));
}

TEST(RankAgreement, MissingSettingCountsAsDifference) {
  RankSettings less = kSettings;
  less.erase("seed");
  EXPECT_THAT(describe_disagreement({kSettings, less}),
              HasSubstr("option seed is 1 on rank 0 and absent on rank 1"));
  EXPECT_THAT(describe_disagreement({less, kSettings}),
              HasSubstr("option seed is absent on rank 0 and 1 on rank 1"));
}

TEST(RankAgreement, ManyDifferencesAreCounted) {
  std::vector<RankSettings> ranks = {kSettings};
  for (int rank = 1; rank <= 20; ++rank) ranks.push_back(with("seed", "7"));
  const std::string text = describe_disagreement(ranks);
  EXPECT_THAT(text, AllOf(HasSubstr("on rank 8; and 12 more; start"), Not(HasSubstr("rank 9"))));
}

TEST(RankAgreement, TextHoldsTheSettings) {
  EXPECT_EQ(settings_of_text(to_text(kSettings)), kSettings);
  const RankSettings odd = {{"data", "a \"b\"\n\u00e9, c"}, {"", ""}};
  EXPECT_EQ(settings_of_text(to_text(odd)), odd);
}

}  // namespace
}  // namespace nsa::train
