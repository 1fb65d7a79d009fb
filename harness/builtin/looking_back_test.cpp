// The phases that look back at a training phase of their run: forecast, scaling, gap_analysis,
// configuration, counterfactual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/builtin/builtins.h"
#include "harness/builtin/fake_program.h"
#include "harness/builtin/training_run.h"
#include "harness/evidence/temp_dir.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : ""; }

class LookingBack : public testing::Test {
 protected:
  protocol::Transcript forecast(const json& args) {
    return look_back(run_.path(), args, run_forecast);
  }
  protocol::Transcript gap(const json& args) {
    return look_back(run_.path(), args, run_gap_analysis);
  }
  protocol::Transcript configuration(const json& args) {
    return look_back(run_.path(), args, [&](const BuiltinCall& call, protocol::Emitter& emitter) {
      run_configuration(bin_.path(), call, emitter);
    });
  }
  protocol::Transcript counterfactual(json args) {
    args.update({{"steps", 23}, {"budget_s", 30}});
    return look_back(run_.path(), args, [&](const BuiltinCall& call, protocol::Emitter& emitter) {
      run_counterfactual_phase(bin_.path(), call, emitter);
    });
  }

  TempDir run_, bin_;
};

json forecast_args(double price) {
  return {{"of", "conform"}, {"price_per_gpu_hour", price}, {"currency", "EUR"}};
}

// 7200 steps of 1000 tokens at 400 tok/s: 18,000 s.
TEST_F(LookingBack, ForecastIsTimeAndCostFromTheBoundsOfTheRate) {
  write_training_run(run_.path(), {.args = {{"ranks", 2}}});
  const auto said = forecast(forecast_args(3));
  EXPECT_EQ(end_of(said), "ok");
  EXPECT_EQ(metric_of(said, "price.set_bool"), true);
  const json rows = rows_of(said, "forecast");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(text_of(rows[0][0]), HasSubstr("7200 steps"));
  EXPECT_NEAR(rows[0][1], 5, .02);   // hours
  EXPECT_NEAR(rows[1][1], 10, .04);  // of two GPUs
  EXPECT_NEAR(rows[2][1], 30, .12);  // at 3 EUR
  for (const json& row : rows) {
    EXPECT_LT(row[2], row[1]);
    EXPECT_GT(row[3], row[1]);
  }
}

TEST_F(LookingBack, ForecastSaysWhatItDoesNotKnow) {
  write_training_run(run_.path(), {.steps = 5});
  const auto said = forecast(forecast_args(0));
  EXPECT_EQ(metric_of(said, "price.set_bool"), false);
  const json rows = rows_of(said, "forecast");
  EXPECT_TRUE(rows[0][2].is_null()) << "no interval from five steps";
  EXPECT_THAT(text_of(rows[2][0]), HasSubstr("names no price"));
  EXPECT_TRUE(rows[2][1].is_null());
  EXPECT_THAT(end_of(forecast(forecast_args(-1))), HasSubstr("must be >= 0, got -1"));
  json other = forecast_args(0);
  other["of"] = "speed";
  EXPECT_THAT(end_of(forecast(other)), HasSubstr("no phase of this run measures speed.eta"));
}

TEST_F(LookingBack, ScalingIsTheRateOverThatOfAsManySingleOnes) {
  write_training_run(run_.path(), {.args = {{"ranks", 2}}});
  const auto of = [&](const char* base, const json& phases) {
    return look_back(run_.path(), {{"base", base}, {"of", phases}}, run_scaling);
  };
  const auto said = of("conform", {"conform"});  // no faster than itself: half of linear
  EXPECT_EQ(end_of(said), "ok");
  EXPECT_NEAR(metric_of(said, "efficiency.x2_pct"), 50, 1e-9);
  EXPECT_LT(metric_of(said, "efficiency.x2_lo_pct"), 50);
  EXPECT_EQ(metric_of(said, "points.measured_count"), 1);
  const json rows = rows_of(said, "scaling");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0][0], 1);
  EXPECT_EQ(rows[1][0], 2);
  EXPECT_EQ(rows[1][4], 50);

  const auto none = of("conform", json::array());
  EXPECT_EQ(metric_of(none, "points.measured_count"), 0);
  EXPECT_THAT(end_of(of("speed", {"conform"})), HasSubstr("no phase of this run measures speed."));
  EXPECT_THAT(end_of(of("conform", {"nowhere"})), HasSubstr("no phase of this runbook"));
}

TEST_F(LookingBack, ScalingOfAPhaseWithoutARateIsNoNumber) {
  write_training_run(run_.path());
  const auto said = look_back(run_.path(), {{"base", "conform"}, {"of", {"cards"}}}, run_scaling);
  EXPECT_EQ(end_of(said), "ok");
  EXPECT_TRUE(metric_of(said, "efficiency.x0_pct").is_null());
  EXPECT_EQ(metric_of(said, "points.measured_count"), 0);
}

json gap_args(double expected) {
  return {{"of", "conform"},
          {"references",
           {{{"name", "expected"}, {"lo", expected}, {"hi", expected}, {"source", "s"}},
            {{"name", "seen"}, {"lo", 10}, {"hi", 20}, {"source", "t"}}}}};
}

const protocol::Finding* gap_finding(const protocol::Transcript& said) {
  return find_line<protocol::Finding>(
      said, [](const protocol::Finding& finding) { return finding.code == "THROUGHPUT_GAP"; });
}

TEST_F(LookingBack, GapAnalysisFindsARateThatItsBoundsDoNotExcuse) {
  write_training_run(run_.path());
  const auto slow = gap(gap_args(800));
  EXPECT_EQ(end_of(slow), "ok");
  EXPECT_NEAR(metric_of(slow, "gap.expected_ratio"), 2, .01);
  ASSERT_NE(gap_finding(slow), nullptr);
  EXPECT_THAT(gap_finding(slow)->symptom, HasSubstr("of 800 tok/s expected: x2"));
  const json rows = rows_of(slow, "gap");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(text_of(rows[0][4]), HasSubstr("slower by x2"));
  EXPECT_THAT(text_of(rows[1][4]), HasSubstr("faster by x2"));
  EXPECT_EQ(rows_of(slow, "causes")[0][0], "none");
  EXPECT_EQ(gap_finding(gap(gap_args(401))), nullptr) << "within the bounds";
  EXPECT_EQ(gap_finding(gap(gap_args(200))), nullptr) << "faster";
}

TEST_F(LookingBack, GapAnalysisWithoutARateDecidesNothing) {
  write_training_run(run_.path());
  json args = gap_args(800);
  args["of"] = "cards";
  const auto said = gap(args);
  EXPECT_THAT(end_of(said), HasSubstr("failed: cards.speed.rate_tok_s has no value"));
  EXPECT_EQ(metric_of(said, "gap.expected_ratio"), "absent");
  args["of"] = "nowhere";
  EXPECT_THAT(end_of(gap(args)), HasSubstr("no phase of this run measures nowhere."));
}

TEST_F(LookingBack, ConfigurationCountsWhatDiffersFromTheReference) {
  write_fake_worker(bin_.path());
  write_training_run(run_.path(), {.args = {{"batch", 1}, {"dtype", "bf16"}, {"warmup", 1}}});
  const auto said = configuration({{"of", {"conform"}},
                                   {"reference", {{"batch", 8}, {"dtype", "bf16"}, {"warmup", 0}}},
                                   {"reference_source", "a run"}});
  EXPECT_EQ(end_of(said), "ok");
  EXPECT_EQ(metric_of(said, "reference.differs_count"), 2);
  EXPECT_EQ(metric_of(said, "switches.known_count"), 1);
  EXPECT_EQ(metric_of(said, "switches.undeclared_count"), 0);
  const json rows = rows_of(said, "settings");
  EXPECT_EQ(rows[0], json({"batch", "1", "8", "no"}));
  EXPECT_EQ(rows[1], json({"dtype", "bf16", "bf16", "yes"}));
}

TEST_F(LookingBack, ConfigurationNamesASwitchThatIsNotAsDeclared) {
  write_fake_worker(bin_.path());  // whose switch is 0 whatever it is told
  write_training_run(run_.path(), {.switches = {{"NSA_SEL_RANGES_V2", "1"}}});
  const auto said = configuration({{"of", {"conform"}}, {"reference", json::object()}});
  EXPECT_EQ(metric_of(said, "switches.undeclared_count"), 1);
  const auto* check = find_line<protocol::Check>(said, [](const protocol::Check& one) {
    return one.id == "switch/conform/NSA_SEL_RANGES_V2";
  });
  ASSERT_NE(check, nullptr);
  EXPECT_FALSE(check->ok);
  EXPECT_EQ(check->code, "CONFIG_DRIFT");
}

TEST_F(LookingBack, ConfigurationRefusesWhatIsNotThere) {
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

/// nsa-train that is four times as fast with 8 sequences as with 1.
void write_fake_trainer(const std::filesystem::path& bin) {
  const auto path = bin / "nsa-train";
  write_bytes(path, R"(#!/bin/sh
read line
case "$line" in *'"batch":8'*) rate=1600;; *) rate=400;; esac
for last; do :; done
{
  echo '{"type":"hello","t":0,"v":1,"program":"fake","build_id":"","pid":1,"rank":0,"world":1,"device":"cpu"}'
  i=0
  while [ $i -lt 24 ]; do
    echo '{"type":"sample","t":0,"case":"planted","series":"tok_s","value":'$rate',"unit":"tok_s","round":'$i',"order":0}'
    i=$((i+1))
  done
  echo '{"type":"case","t":0,"case":"planted","status":"ok"}'
  echo '{"type":"done","t":0,"lines":26}'
} > "$last"
)");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

TEST_F(LookingBack, CounterfactualExplainsAGateThatFailed) {
  write_fake_trainer(bin_.path());
  write_training_run(run_.path(), {.gate_tok_s = 1600});
  const auto said = counterfactual({{"of", "conform"}, {"recommended", {{"batch", 8}}}});
  EXPECT_EQ(end_of(said), "ok");
  EXPECT_EQ(metric_of(said, "factors.tried_count"), 1);
  EXPECT_NEAR(metric_of(said, "gap.target_ratio"), 4, 1e-9);
  EXPECT_NEAR(metric_of(said, "gap.explained_pct"), 100, 1e-6);
  EXPECT_EQ(rows_of(said, "factors")[0][0], "batch");
  EXPECT_NE(find_line<protocol::Finding>(
                said, [](const protocol::Finding& f) { return f.code == "GAP_ATTRIBUTED"; }),
            nullptr);
}

TEST_F(LookingBack, CounterfactualTrainsNothingBehindAGateThatPassed) {
  write_fake_trainer(bin_.path());  // which would be faster
  write_training_run(run_.path(), {.gate_tok_s = 100});
  const auto said = counterfactual({{"of", "conform"}, {"recommended", {{"batch", 8}}}});
  EXPECT_EQ(end_of(said), "ok");
  EXPECT_EQ(metric_of(said, "factors.tried_count"), 0);
  EXPECT_TRUE(metric_of(said, "gap.explained_pct").is_null());
  EXPECT_EQ(find_line<protocol::Finding>(said, [](const auto&) { return true; }), nullptr);
}

TEST_F(LookingBack, CounterfactualRefusesWhatCannotExplain) {
  const json of_conform = {{"of", "conform"}, {"recommended", {{"batch", 8}}}};
  {
    const TempDir ungated;
    write_training_run(ungated.path());
    EXPECT_THAT(end_of(look_back(ungated.path(), of_conform,
                                 [&](const BuiltinCall& call, protocol::Emitter& emitter) {
                                   run_counterfactual_phase(bin_.path(), call, emitter);
                                 })),
                HasSubstr("has no gate on tok_s"));
  }
  write_training_run(run_.path(), {.gate_tok_s = 1600});
  EXPECT_THAT(end_of(counterfactual({{"of", "speed"}, {"recommended", json::object()}})),
              HasSubstr("must name a phase of nsa-train, got 'speed'"));
  EXPECT_THAT(end_of(counterfactual({{"of", "conform"}, {"recommended", {{"bath", 8}}}})),
              HasSubstr("nsa-train has no argument 'bath'"));
  const auto said = counterfactual(of_conform);  // no trainer
  EXPECT_TRUE(metric_of(said, "gap.explained_pct").is_null()) << "nothing is explained by nothing";
}

}  // namespace
}  // namespace harness
