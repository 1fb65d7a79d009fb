#include <gmock/gmock.h>

#include <set>

#include "suites/phases/testing.h"

namespace suites {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

/// A case in mode time, with its end.
struct TimedCase {
  explicit TimedCase(const json& args) : recorded("cpu_attention_ab", small(args)) {
    base::protocol::CaseIn in = recorded.one().in;
    in.mode = "time";
    end = run_cpu_attention_ab(
        {in, "main", recorded.one().args, recorded.one().device, recorded.one().emitter});
  }
  static json small(const json& args) {
    json all{{"Hq", 2}, {"Hkv", 1}, {"dk", 16}, {"rows", 4}, {"S", {64, 128}}};
    all.update(args);
    return all;
  }
  RecordedCase recorded;
  std::string end;
};

TEST(CpuAttentionAb, TimesEveryArmTheLongestLengthFirst) {
  for (const char* work : {"training", "decode"}) {
    const TimedCase done({{"work", work}, {"dtype", "bf16"}});
    EXPECT_EQ(done.end, "");
    std::set<std::string> series;
    for (const json& sample : done.recorded.lines("sample")) series.insert(sample["series"]);
    EXPECT_THAT(series, testing::ElementsAre("s128.dense_bf16", "s128.dense_fp32", "s128.nsa",
                                             "s128.nsa.aa", "s64.dense_bf16", "s64.dense_fp32",
                                             "s64.nsa", "s64.nsa.aa"));
    EXPECT_THAT(done.recorded.lines("sample")[0]["series"].get<std::string>(), StartsWith("s128."));
    EXPECT_EQ(done.recorded.lines("metric").size(), 1u) << "longest.faster_ratio";
    int64_t paths = 0;
    for (const json& check : done.recorded.lines("check")) {
      EXPECT_EQ(check["ok"], true) << check;
      paths += check["id"].get<std::string>().starts_with("path/");
    }
    EXPECT_EQ(paths, 8);
  }
}

TEST(CpuAttentionAb, AWrongOutputLeavesNoSamples) {
  const TimedCase done(json{{"fault", "P06"}});
  EXPECT_THAT(done.end, StartsWith("speed-up withheld: not valid, output mismatch in oracle/"));
  EXPECT_TRUE(done.recorded.lines("sample").empty());
}

TEST(CpuAttentionAb, ALengthThatDoesNotFitIsListedAndNotRun) {
  const TimedCase done(json{{"S", {64, int64_t{1} << 40}}});
  EXPECT_EQ(done.end, "");
  const json table = done.recorded.lines("table").at(0);
  EXPECT_EQ(table["id"], "not_run");
  EXPECT_EQ(table["rows"].size(), 1u);
  EXPECT_EQ(table["rows"][0][0], int64_t{1} << 40);
  EXPECT_THAT(table["rows"][0][1].get<std::string>(), HasSubstr(" GiB are available"));
  EXPECT_TRUE(done.recorded.lines("metric").empty()) << "the longest length was not run";
}

}  // namespace
}  // namespace suites
