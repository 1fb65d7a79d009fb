#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/fake_program.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CounterfactualPhase : public testing::Test {
 protected:
  base::protocol::Transcript counterfactual(json args) {
    args.update({{"steps", 23}, {"budget_s", 30}});
    return look_back(run_.path(), args,
                     [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
                       run_counterfactual_phase(bin_.path(), call, emitter);
                     });
  }

  TempDir run_, bin_;
};

void write_fake_trainer_text(const std::filesystem::path& bin, const std::string& text) {
  write_bytes(bin / "nsa-train", text);
  std::filesystem::permissions(bin / "nsa-train", std::filesystem::perms::owner_all);
}

/// nsa-train that is four times as fast with 8 sequences as with 1.
void write_fake_trainer(const std::filesystem::path& bin) {
  write_fake_trainer_text(bin, R"(#!/bin/sh
read line
case "$line" in *'"batch":8'*) rate=1600;; *) rate=400;; esac
for last; do :; done
{
  echo '{"type":"hello","t":0,"v":1,"program":"fake","build_id":"","pid":1,"rank":0,"world":1,"device":"cpu"}'
  i=0
  while [ $i -lt 24 ]; do
    echo '{"type":"sample","t":0,"case":"injected","series":"tok_s","value":'$rate',"unit":"tok_s","round":'$i',"order":0}'
    i=$((i+1))
  done
  echo '{"type":"case","t":0,"case":"injected","status":"ok"}'
  echo '{"type":"done","t":0,"lines":26}'
} > "$last"
)");
}

TEST_F(CounterfactualPhase, ExplainsAGateThatFailed) {
  write_fake_trainer(bin_.path());
  write_training_run(run_.path(), {.gate_tok_s = 1600});
  const auto transcript = counterfactual({{"of", "conform"}, {"recommended", {{"batch", 8}}}});
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_EQ(metric_of(transcript, "factors.tried_count"), 1);
  EXPECT_NEAR(metric_of(transcript, "gap.target_ratio"), 4, 1e-9);
  EXPECT_NEAR(metric_of(transcript, "gap.explained_pct"), 100, 1e-6);
  EXPECT_EQ(rows_of(transcript, "factors")[0][0], "batch");
  EXPECT_NE(
      find_line<base::protocol::Finding>(
          transcript, [](const base::protocol::Finding& f) { return f.code == "GAP_ATTRIBUTED"; }),
      nullptr);
}

TEST_F(CounterfactualPhase, AStepWithoutARateIsNotLeftOut) {
  write_fake_trainer(bin_.path());
  std::string text = read_bytes(bin_.path() / "nsa-train");
  text.insert(text.find("  echo '{\"type\":\"sample\""),
              "  [ $i$rate = 31600 ] && rate='null,\"reason\":\"not finite: inf\"'\n");
  write_fake_trainer_text(bin_.path(), text);
  write_training_run(run_.path(), {.gate_tok_s = 1600});
  const auto transcript = counterfactual({{"of", "conform"}, {"recommended", {{"batch", 8}}}});
  const auto* figure = find_line<base::protocol::Metric>(
      transcript, [](const auto& metric) { return metric.name == "gap.explained_pct"; });
  EXPECT_THAT(figure->reason, HasSubstr("the run gave a rate that is none: not finite: inf"));
}

TEST_F(CounterfactualPhase, TrainsNothingBehindAGateThatPassed) {
  write_fake_trainer(bin_.path());  // which would be faster
  write_training_run(run_.path(), {.gate_tok_s = 100});
  const auto transcript = counterfactual({{"of", "conform"}, {"recommended", {{"batch", 8}}}});
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_EQ(metric_of(transcript, "factors.tried_count"), 0);
  EXPECT_TRUE(metric_of(transcript, "gap.explained_pct").is_null());
  EXPECT_EQ(find_line<base::protocol::Finding>(transcript, [](const auto&) { return true; }),
            nullptr);
}

TEST_F(CounterfactualPhase, RefusesWhatCannotExplain) {
  const json of_conform = {{"of", "conform"}, {"recommended", {{"batch", 8}}}};
  {
    const TempDir ungated;
    write_training_run(ungated.path());
    EXPECT_THAT(end_of(look_back(ungated.path(), of_conform,
                                 [&](const BuiltinCall& call, base::protocol::Emitter& emitter) {
                                   run_counterfactual_phase(bin_.path(), call, emitter);
                                 })),
                HasSubstr("has no gate on tok_s"));
  }
  write_training_run(run_.path(), {.gate_tok_s = 1600});
  EXPECT_THAT(end_of(counterfactual({{"of", "speed"}, {"recommended", json::object()}})),
              HasSubstr("must name a phase of nsa-train, got 'speed'"));
  EXPECT_THAT(end_of(counterfactual({{"of", "conform"}, {"recommended", {{"bath", 8}}}})),
              HasSubstr("nsa-train has no argument 'bath'"));
  const auto transcript = counterfactual(of_conform);  // no trainer
  EXPECT_TRUE(metric_of(transcript, "gap.explained_pct").is_null())
      << "nothing is explained by nothing";
}

}  // namespace
}  // namespace harness
