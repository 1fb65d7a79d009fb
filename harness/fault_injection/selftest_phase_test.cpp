#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/paths.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/injected_faults.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/fake_program.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using testing::HasSubstr;

class SelftestTest : public testing::Test {
 protected:
  base::protocol::Transcript run(const std::vector<std::string>& faults) {
    return run_alone(dir_ / "raw.jsonl", {{"faults", faults}},
                     [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
                       run_selftest(dir_ / "bin", base::source_dir() + "/configs", call, emitter);
                     });
  }
  static const base::protocol::Check& check(const base::protocol::Transcript& transcript,
                                            const std::string& id) {
    const auto* found = find_line<base::protocol::Check>(
        transcript, [&](const base::protocol::Check& c) { return c.id == id; });
    if (found == nullptr) throw std::runtime_error("no check " + id);
    return *found;
  }
  TempDir dir_;
};

TEST_F(SelftestTest, EveryFaultIsCaughtAndEveryControlIsClean) {
  write_fake_worker(dir_ / "bin");
  const std::vector<std::string> ids = {"P08", "P24", "P25", "P29"};
  const auto transcript = run(ids);
  EXPECT_TRUE(transcript.violations.empty());
  for (const std::string& id : ids) {
    EXPECT_TRUE(check(transcript, "fault/" + id).ok) << check(transcript, "fault/" + id).detail;
    EXPECT_TRUE(check(transcript, "control/" + id).ok) << check(transcript, "control/" + id).detail;
  }
  const auto* table = find_line<base::protocol::Table>(
      transcript, [](const base::protocol::Table& t) { return t.id == "catch_matrix"; });
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->rows.size(), 4U);
  EXPECT_EQ(table->rows[0][3], "caught");
}

TEST_F(SelftestTest, WhatNeedsOtherHardwareIsDeferredByName) {
  const auto transcript = run({"P12"});  // on a CPU
  EXPECT_EQ(check(transcript, "deferred/P12").detail, "needs cuda");
  EXPECT_THROW(check(transcript, "fault/P12"), std::runtime_error);
}

TEST_F(SelftestTest, WhatWasSeenIsReported) {
  write_fake_worker(dir_ / "bin");
  const auto transcript = run({"P24", "P25", "P29"});
  EXPECT_THAT(check(transcript, "fault/P24").detail,
              HasSubstr("other hardware: NOT_EVALUATED, BASELINE_INVALID"));
  EXPECT_THAT(check(transcript, "fault/P25").detail,
              HasSubstr("phase skipped: NOT_EVALUATED, verdict PARTIAL"));
  EXPECT_THAT(check(transcript, "fault/P29").detail,
              HasSubstr("artifact: verify names phases/speed/g01.jsonl"));
}

TEST_F(SelftestTest, BlindWorkerIsMissed) {
  write_fake_worker(dir_ / "bin", /*blind=*/true);
  const auto transcript = run({"P08"});
  EXPECT_FALSE(check(transcript, "fault/P08").ok);
  EXPECT_EQ(check(transcript, "fault/P08").code, "FAULT_MISSED");
  EXPECT_TRUE(check(transcript, "control/P08").ok);
}

TEST_F(SelftestTest, AlarmWithoutFaultIsFalse) {
  write_fake_worker(dir_ / "bin", /*blind=*/false, /*alarmed=*/true);
  const auto transcript = run({"P08"});
  EXPECT_FALSE(check(transcript, "control/P08").ok);
  EXPECT_EQ(check(transcript, "control/P08").code, "FALSE_ALARM");
}

TEST_F(SelftestTest, MissingWorkerIsMissedNotPassed) {
  const auto transcript = run({"P03", "P08"});
  EXPECT_FALSE(check(transcript, "fault/P03").ok);
  EXPECT_FALSE(check(transcript, "fault/P08").ok);
  EXPECT_FALSE(check(transcript, "control/P03").ok);
}

TEST_F(SelftestTest, UnknownFaultIsAnErrorNamingTheKnown) {
  try {
    run({"P3"});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("args.faults names 'P3', which selftest cannot inject"));
  }
}

}  // namespace
}  // namespace harness
