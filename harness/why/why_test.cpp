#include "harness/why/why.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "base/testing/paths.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/packed_run.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/verify.h"
#include "harness/schema/error.h"
#include "harness/trace/trace_file.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;
using trace::Ns;

constexpr const char* kTrace = "phases/hotspots/out/hotspots.trace.jsonl";
constexpr const char* kChanged = "interval_backward_kernel";

/// A recorded run of a GPU, and a copy in which one kernel takes half as long again.
class Runs {
 public:
  Runs() {
    fs::copy(fs::path(base::source_dir()) / "reports/samples/single_gpu-h200", folder(),
             fs::copy_options::recursive);
    unpack_run(folder());
    a_ = read_results(sample());
    b_ = a_;
    const double more_ms = lengthen();
    for (nlohmann::json& table : b_.tables)
      if (table["id"] == "hotspots.dilation")
        for (nlohmann::json& row : table["rows"]) row[1] = row[1].get<double>() + more_ms;
  }
  RunFolder sample() const {
    return RunFolder(fs::path(base::source_dir()) / "reports/samples/single_gpu-h200");
  }
  RunFolder changed() const { return RunFolder(folder()); }
  fs::path folder() const { return dir_ / "run"; }
  /// Of the phase hotspots of the changed run.
  void set_argument(const std::string& name, const nlohmann::json& value) const {
    nlohmann::json book = changed().read_json("runbook.json");
    for (nlohmann::json& phase : book["phases"])
      if (phase["id"] == "hotspots") phase["args"][name] = value;
    std::ofstream(folder() / "runbook.json") << book.dump(1);
    nlohmann::json run = changed().read_json("run.json");
    run["runbook_sha256"] = sha256_file(folder() / "runbook.json");
    std::ofstream(folder() / "run.json") << run.dump(1);
  }
  const Results& a() const { return a_; }
  Results& b() { return b_; }

 private:
  /// All that comes behind a longer kernel comes later. Returns the time that a step gains.
  double lengthen() const {
    trace::Trace trace = trace::read_trace_file(folder() / kTrace);
    std::vector<std::pair<Ns, Ns>> longer;  // end of a kernel, what it gains
    for (const trace::DeviceWork& work : trace.work)
      if (trace.name_of(work.name).find(kChanged) != std::string::npos)
        longer.emplace_back(work.time.end, work.time.length() / 2);
    Ns all = 0;
    const auto later = [&](Ns at) {
      Ns shift = 0;
      for (const auto& [end, gain] : longer) shift += end <= at ? gain : 0;
      return at + shift;
    };
    for (auto& work : trace.work) work.time = {later(work.time.begin), later(work.time.end)};
    for (auto& call : trace.calls) call.time = {later(call.time.begin), later(call.time.end)};
    for (auto& range : trace.ranges) range.time = {later(range.time.begin), later(range.time.end)};
    for (auto& wait : trace.waits) wait.at = later(wait.at);
    trace::write_trace_file(folder() / kTrace, trace);
    for (const auto& [end, gain] : longer) all += gain;
    return static_cast<double>(all) / 1e6 / 2;  // two steps
  }

  TempDir dir_;
  Results a_, b_;
};

TEST(Why, ALongerKernelIsFoundAndClosesTheDifference) {
  Runs runs;
  const auto found =
      explain_difference(runs.sample(), runs.a(), runs.changed(), runs.b(), "hotspots");
  ASSERT_EQ(found.size(), 1U);
  const Explanation& e = found[0];
  EXPECT_EQ(e.not_decidable, "");
  const double left = e.unexplained_pct().value_or(NAN);
  std::printf("left unexplained: %.2f %%; %s\n", left, difference_text(e).c_str());
  EXPECT_LE(left, 5);
  EXPECT_GT(e.recorded.delta_ms(), 0.5);
  EXPECT_THAT(e.recorded.parts[0].name, HasSubstr(kChanged));
  EXPECT_THAT(difference_text(e), HasSubstr("Largest change: "));
  double closed = 0;
  const nlohmann::json shown = difference_tables(e, 6).back()["rows"];
  EXPECT_EQ(shown.size(), 7U) << "six parts and the rest";
  for (const nlohmann::json& row : shown) closed += row.back().get<double>();
  EXPECT_NEAR(closed, e.recorded.delta_ms(), 1e-9);
}

TEST(Why, WhatTheProfilesDoNotHoldIsLeftUnexplained) {
  Runs runs;
  for (nlohmann::json& table : runs.b().tables)
    if (table["id"] == "hotspots.dilation")
      for (nlohmann::json& row : table["rows"]) row[1] = row[1].get<double>() + 5;
  const auto found = explain_difference(runs.sample(), runs.a(), runs.changed(), runs.b(), "");
  EXPECT_NEAR(found[0].unexplained_ms().value_or(NAN), 5, 1e-6);
  EXPECT_GT(found[0].unexplained_pct().value_or(NAN), 50);
}

TEST(Why, NoDifferenceIsNotExplained) {
  Runs runs;
  const auto found = explain_difference(runs.sample(), runs.a(), runs.sample(), runs.a(), "");
  EXPECT_THAT(found[0].not_decidable, HasSubstr("no difference is shown"));
  EXPECT_THAT(difference_text(found[0]), HasSubstr("Not decidable: the intervals"));
  EXPECT_EQ(found[0].recorded.delta_ms(), 0);
}

TEST(Why, RunsWithoutACommonProfileNameThePhaseThatRecordsOne) {
  Runs runs;
  fs::remove(runs.folder() / kTrace);
  const auto missing = [&](const std::string& phase) {
    return [&runs, phase] {
      explain_difference(runs.sample(), runs.a(), runs.changed(), runs.b(), phase);
    };
  };
  EXPECT_THAT(missing(""), ThrowsMessage<ConfigError>(HasSubstr(
                               "record one in each: nsa-validate --runbook single_gpu --only "
                               "hotspots")));
  EXPECT_THAT(missing("smoke"), ThrowsMessage<ConfigError>(HasSubstr("of phase 'smoke'")));
}

TEST(Why, ProfilesOfOtherWorkAreRefused) {
  Runs runs;
  runs.set_argument("S", 4096);
  EXPECT_THAT([&] { explain_difference(runs.sample(), runs.a(), runs.changed(), runs.b(), ""); },
              ThrowsMessage<ConfigError>(HasSubstr("phase 'hotspots' ran with S ")));
}

/// A rank does what one process does, so the difference is what ranks cost; it is stated.
TEST(Why, AnotherNumberOfRanksIsExplained) {
  Runs runs;
  runs.set_argument("ranks", 2);
  const auto found = explain_difference(runs.sample(), runs.a(), runs.changed(), runs.b(), "");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(difference_text(found[0]),
              HasSubstr("Note: ranks are 1 in A and 2 in B, the profiles those of rank 0. "));
}

TEST(Why, DamagedProfilesAndOtherWorkAreNamed) {
  Runs runs;
  trace::Trace lost = trace::read_trace_file(runs.folder() / kTrace);
  lost.dropped = 3;
  trace::write_trace_file(runs.folder() / kTrace, lost);
  const auto found = explain_difference(runs.sample(), runs.a(), runs.changed(), runs.b(), "");
  EXPECT_THAT(found[0].not_decidable, HasSubstr("the profile of B lost 3 records"));
  EXPECT_EQ(found[0].unexplained_ms(), std::nullopt);

  std::ofstream(runs.folder() / kTrace) << "no archive";
  EXPECT_THROW(explain_difference(runs.sample(), runs.a(), runs.changed(), runs.b(), ""),
               EvidenceError);
}

}  // namespace
}  // namespace harness
