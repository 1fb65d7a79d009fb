#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/testing/paths.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/fake_build.h"
#include "harness/phases/fake_checkout.h"
#include "harness/phases/fake_program.h"
#include "harness/provenance/build/git.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class EnvironmentPhaseTest : public testing::Test {
 protected:
  void SetUp() override { write_fake_worker(bin_); }

  base::protocol::Transcript run() { return run_in(this_checkout()); }

  base::protocol::Transcript run_in(const std::optional<fs::path>& checkout) {
    fs::remove(dir_ / "raw.jsonl");
    return run_alone(dir_ / "raw.jsonl", nlohmann::json::object(),
                     [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
                       run_environment(bin_, checkout, call, emitter);
                     });
  }

  static nlohmann::json value(const base::protocol::Transcript& transcript,
                              const std::string& name) {
    const auto* found = find_line<base::protocol::Metric>(
        transcript, [&](const base::protocol::Metric& m) { return m.name == name; });
    return found == nullptr ? nlohmann::json("absent") : found->value;
  }

  static std::string failure(const base::protocol::Transcript& transcript, const std::string& id) {
    const auto* found = find_line<base::protocol::Check>(
        transcript, [&](const base::protocol::Check& c) { return c.id == id && !c.ok; });
    return found == nullptr ? "" : found->code + " " + found->detail;
  }

  TempDir dir_;
  fs::path bin_ = dir_ / "bin";
};

TEST_F(EnvironmentPhaseTest, FittingBuildHasItsMetrics) {
  write_build_id(bin_, base::source_dir());
  const auto transcript = run();
  EXPECT_TRUE(transcript.violations.empty());
  EXPECT_EQ(value(transcript, "build.id_matches_bool"), true) << failure(transcript, "build.id");
  EXPECT_NE(value(transcript, "git.commit_known_bool"), "absent");
  EXPECT_EQ(value(transcript, "switches.unknown_count"), 0);
}

TEST_F(EnvironmentPhaseTest, OlderBuildNamesTheFiles) {
  write_build_id(bin_, base::source_dir(), "harness/phases/builtin_phases.cpp");
  const auto transcript = run();
  EXPECT_EQ(value(transcript, "build.id_matches_bool"), false);
  EXPECT_THAT(failure(transcript, "build.id"), HasSubstr("PROVENANCE_MISMATCH"));
  EXPECT_THAT(failure(transcript, "build.id"), HasSubstr("harness/phases/builtin_phases.cpp"));
}

TEST_F(EnvironmentPhaseTest, OtherProgramIsNamed) {
  write_build_id(bin_, base::source_dir());
  fs::copy_file("/bin/true", bin_ / "program", fs::copy_options::overwrite_existing);
  EXPECT_THAT(failure(run(), "build.id"), HasSubstr("program"));
}

TEST_F(EnvironmentPhaseTest, WithoutBuildIdNothingMatches) {
  EXPECT_EQ(value(run(), "build.id_matches_bool"), false);
}

TEST_F(EnvironmentPhaseTest, WithoutCheckoutAndRecordTheCommitIsUnknown) {
  const auto transcript = run_in(std::nullopt);
  EXPECT_EQ(value(transcript, "git.commit_known_bool"), false);
  EXPECT_EQ(value(transcript, "git.dirty_count"), nullptr);
}

TEST_F(EnvironmentPhaseTest, AFileThatDiffersIsCounted) {
  const fs::path repo = dir_ / "repo";
  fs::create_directories(repo);
  write_bytes(repo / "a.cpp", "1\n");
  commit_first(repo);
  EXPECT_EQ(value(run_in(repo), "git.dirty_count"), 0);
  write_bytes(repo / "a.cpp", "2\n");
  const auto transcript = run_in(repo);
  EXPECT_EQ(value(transcript, "git.dirty_count"), 1);
  EXPECT_THAT(failure(transcript, "git.clean"), HasSubstr("a.cpp"));
}

TEST_F(EnvironmentPhaseTest, UnknownSwitchIsCountedAndNamed) {
  ::setenv("NSA_SEL_RANGES_V2", "1", 1);
  ::setenv("NSA_NO_SUCH_SWITCH", "1", 1);
  const auto transcript = run();
  ::unsetenv("NSA_NO_SUCH_SWITCH");
  ::unsetenv("NSA_SEL_RANGES_V2");
  EXPECT_EQ(value(transcript, "switches.unknown_count"), 1);
  EXPECT_THAT(failure(transcript, "switches.NSA_NO_SUCH_SWITCH"), HasSubstr("CONFIG_ERROR"));
}

TEST_F(EnvironmentPhaseTest, WithoutWorkerSwitchesAreUnknownNotFine) {
  fs::remove(bin_ / "nsa-worker");
  EXPECT_EQ(value(run(), "switches.unknown_count"), nullptr);
}

}  // namespace
}  // namespace harness
