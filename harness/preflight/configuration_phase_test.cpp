#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/fake_program.h"
#include "harness/schema/error.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ConfigurationPhase : public testing::Test {
 protected:
  base::protocol::Transcript configuration(const json& args) {
    return look_back(run_.path(), args,
                     [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
                       run_configuration(bin_.path(), call, emitter);
                     });
  }

  TempDir run_, bin_;
};

TEST_F(ConfigurationPhase, CountsWhatDiffersFromTheReference) {
  write_fake_worker(bin_.path());
  write_training_run(run_.path(), {.args = {{"batch", 1}, {"dtype", "bf16"}, {"warmup", 1}}});
  const auto transcript =
      configuration({{"of", {"conform"}},
                     {"reference", {{"batch", 8}, {"dtype", "bf16"}, {"warmup", 0}}},
                     {"reference_source", "a run"}});
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_EQ(metric_of(transcript, "reference.differs_count"), 2);
  EXPECT_EQ(metric_of(transcript, "switches.known_count"), 1);
  EXPECT_EQ(metric_of(transcript, "switches.undeclared_count"), 0);
  const json rows = rows_of(transcript, "settings");
  EXPECT_EQ(rows[0], json({"batch", "1", "8", "no"}));
  EXPECT_EQ(rows[1], json({"dtype", "bf16", "bf16", "yes"}));
}

TEST_F(ConfigurationPhase, NamesASwitchThatIsNotAsDeclared) {
  write_fake_worker(bin_.path());  // whose switch is 0 whatever the environment holds
  write_training_run(run_.path(), {.switches = {{"NSA_SEL_RANGES_V2", "1"}}});
  const auto transcript = configuration({{"of", {"conform"}}, {"reference", json::object()}});
  EXPECT_EQ(metric_of(transcript, "switches.undeclared_count"), 1);
  const auto* check =
      find_line<base::protocol::Check>(transcript, [](const base::protocol::Check& one) {
        return one.id == "switch/conform/NSA_SEL_RANGES_V2";
      });
  ASSERT_NE(check, nullptr);
  EXPECT_FALSE(check->ok);
  EXPECT_EQ(check->code, "CONFIG_DRIFT");
}

TEST_F(ConfigurationPhase, SettingsOfAHistoricalRunAreAsThenOrExplained) {
  write_fake_worker(bin_.path());
  write_training_run(run_.path(), {.args = {{"batch", 1}}});
  const auto transcript = configuration(
      {{"of", {"conform"}},
       {"reference", json::object()},
       {"exported",
        {{{"name", "batch"}, {"then", "1"}},
         {{"name", "NSA_SEL_RANGES_V2"}, {"then", "1"}},
         {{"name", "NSA_TEST_ABSENT"}, {"then", "on"}, {"why", "nothing reads it here"}}}}});
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_EQ(metric_of(transcript, "exported.listed_count"), 3);
  EXPECT_EQ(metric_of(transcript, "exported.unexplained_count"), 1);
  const json rows = rows_of(transcript, "exported");
  EXPECT_EQ(rows[0], json({"batch", "1", "1", "yes", "–"}));
  EXPECT_EQ(rows[1][3], "no");
  EXPECT_EQ(rows[2], json({"NSA_TEST_ABSENT", "on", "not set", "no", "nothing reads it here"}));
}

TEST_F(ConfigurationPhase, RefusesWhatIsNotThere) {
  write_fake_worker(bin_.path());
  write_training_run(run_.path());
  const auto error_of = [&](const json& args) -> std::string {
    try {
      configuration(args);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(error_of({{"of", {"nowhere"}}, {"reference", json::object()}}),
              HasSubstr("no phase 'nowhere' in this runbook"));
  EXPECT_THAT(error_of({{"of", json::array()}, {"reference", json::object()}}),
              HasSubstr("must name a phase"));
  EXPECT_THAT(error_of({{"of", {"conform"}}, {"reference", {{"bath", 8}}}}),
              HasSubstr("conform has no argument 'bath'"));
}

}  // namespace
}  // namespace harness
