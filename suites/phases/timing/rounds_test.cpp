#include "suites/phases/timing/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace suites {
namespace {

using nlohmann::json;
using testing::ElementsAre;

void compute(double ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// A case on a CPU whose lines can be read back.
class RecordedCase {
 public:
  ~RecordedCase() { ::unlink(file_.c_str()); }
  const PhaseCase& one() const { return one_; }
  std::vector<json> lines(const std::string& type) const {
    std::vector<json> found;
    std::ifstream in(file_);
    for (std::string text; std::getline(in, text);) {
      json line = json::parse(text);
      if (line["type"] == type) found.push_back(std::move(line));
    }
    return found;
  }

 private:
  std::string file_ = testing::TempDir() + "/rounds_" + std::to_string(::getpid());
  base::protocol::CaseIn in_{.phase = "p", .kind = "ab_control", .mode = "time", .seed = 3};
  base::protocol::Emitter emitter_{file_};
  PhaseCase one_{in_, "main", Args("ab_control", json::object(), {}), at::kCPU, emitter_};
};

TEST(Rounds, EverySeriesRunsTwiceARoundThereAndBack) {
  RecordedCase recorded;
  std::string order;
  const std::vector<TimedSeries> series = {
      {"a", [&] { order += 'a'; }}, {"b", [&] { order += 'b'; }}, {"c", [&] { order += 'c'; }, 2}};
  int64_t step = 4;
  time_rounds(recorded.one(), series, 3, step, 20);
  EXPECT_EQ(step, 7);
  ASSERT_EQ(order.size(), 3u * 8);
  for (size_t round = 0; round < 3; ++round) {
    const std::string one = order.substr(8 * round, 8);
    EXPECT_TRUE(one == "abccccba" || one == "ccbaabcc") << one;
  }
  const auto samples = recorded.lines("sample");
  ASSERT_EQ(samples.size(), 18u);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i]["round"], i / 6);
    EXPECT_EQ(samples[i]["order"], i % 6);
  }
  EXPECT_EQ(recorded.lines("beat").size(), 3u);
}

TEST(Rounds, TimesOnlyTheWorkAndJoinsRanks) {
  RecordedCase recorded;
  int64_t met = 0, step = 0;
  const std::vector<TimedSeries> series = {{.name = "slow",
                                            .work = [] { compute(1); },
                                            .before =
                                                [&] {
                                                  compute(20);
                                                  ++met;
                                                },
                                            .joined = [](double ms) { return 100 + ms; }},
                                           {.name = "plain", .work = [] { compute(1); }}};
  time_rounds(recorded.one(), series, 2, step, 2);
  EXPECT_EQ(met, 4) << "twice a round";
  for (const json& sample : recorded.lines("sample")) {
    const bool joined = sample["series"] == "slow";
    EXPECT_GE(sample["value"].get<double>(), joined ? 101 : 1);
    EXPECT_LT(sample["value"].get<double>(), joined ? 120 : 20);
  }
}

TEST(Rounds, SamplesOnACpuReportHowMuchTheThreadRan) {
  using std::chrono::milliseconds;
  RecordedCase recorded;
  int64_t step = 0;
  time_rounds(recorded.one(),
              {{"busy", [] { compute(5); }},
               {"asleep", [] { std::this_thread::sleep_for(milliseconds(20)); }}},
              1, step, 1);
  const auto samples = recorded.lines("sample");
  ASSERT_EQ(samples.size(), 4u);
  for (const json& sample : samples) {
    EXPECT_FALSE(sample.contains("throttle")) << "nothing is known of a CPU";
    ASSERT_TRUE(sample.contains("ran_pct")) << sample;
    const double ran = sample["ran_pct"];
    EXPECT_GE(ran, 0);
    EXPECT_LE(ran, 100);
    const bool asleep = sample["series"] == "asleep";
    EXPECT_TRUE(asleep ? ran < 50 : ran > 1) << sample;
  }
}

TEST(Rounds, NothingIsMeasuredColdOnACpu) {
  RecordedCase recorded;
  EXPECT_TRUE(cold_series(recorded.one(), {{"a", [] {}, 100}}, 10).empty());
  int64_t step = 0;
  EXPECT_THROW(time_rounds(recorded.one(), {{"a", [] {}, 1, true}}, 1, step, 1), c10::Error);
  EXPECT_TRUE(recorded.lines("sample").empty());
}

TEST(Rounds, ColdSeriesAreNamedAndShort) {
  RecordedCase recorded;
  PhaseCase cuda = recorded.one();
  cuda.device = at::Device(at::kCUDA, 0);
  const auto cold = cold_series(cuda, {{"v1", [] {}, 100}, {"v1.aa", [] {}, 3}}, 10);
  ASSERT_EQ(cold.size(), 2u);
  EXPECT_EQ(cold[0].name, "v1.cold");
  EXPECT_EQ(cold[0].calls, 10);
  EXPECT_EQ(cold[1].name, "v1.cold.aa");
  EXPECT_EQ(cold[1].calls, 3);
  EXPECT_TRUE(cold[0].cold && cold[1].cold);
}

TEST(Honours, SwitchesOfAttentionWhereAPhaseLooksAtThem) {
  const PhaseKind &training = find_phase_kind("hotspots"), &control = find_phase_kind("ab_control");
  EXPECT_TRUE(honours(training, "NSA_USE_SEL_MASK"));
  EXPECT_FALSE(honours(control, "NSA_USE_SEL_MASK"));
  EXPECT_FALSE(honours(training, "NSA_FWE_Q")) << "the loader of a training run, not of this";
  EXPECT_TRUE(honours(control, "NSA_NVTX")) << "every worker does";
  const PhaseKind& strict = find_phase_kind("strict_fallback");
  EXPECT_TRUE(honours(strict, "NSA_KERNELS")) << "its backends run the code of the kernels";
  EXPECT_FALSE(honours(strict, "NSA_USE_SEL_MASK")) << "its arguments name the backends";
  EXPECT_FALSE(honours(control, "NSA_KERNELS"));
}

}  // namespace
}  // namespace suites
