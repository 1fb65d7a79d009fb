#include "harness/runbook/plan/baseline.h"

#include "harness/runbook/plan/hardware.h"
#include "harness/runbook/testing.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

const HardwareKey kHere = {"NVIDIA H200", 700, 580, "2.11"};

json good() {
  return {{"schema", "nsa-baseline/1"},
          {"runbook", "single_gpu"},
          {"build_id", "abc"},
          {"reason", "first"},
          {"hardware",
           {{"sku", "NVIDIA H200"},
            {"power_limit_w", 700},
            {"driver_major", 580},
            {"libtorch", "2.11"}}},
          {"metrics",
           {{{"metric", "train.speed.rate_tok_s"},
             {"value", 9000},
             {"lo", 8900},
             {"hi", 9100},
             {"n", 60},
             {"unit", "tok_s"}}}}};
}

BaselineSet load(const std::string& text) {
  TempConfigs configs;
  configs.write("b.json", text);
  return load_baseline(configs.dir() / "b.json", "single_gpu", kHere);
}

TEST(Baseline, GivesItsValues) {
  const BaselineSet set = load(good().dump());
  EXPECT_EQ(set.problem, "");
  EXPECT_EQ(set.values.at("train.speed.rate_tok_s"), 9000);
}

TEST(Baseline, HasAFileNameMadeOfTheKey) {
  EXPECT_EQ(baseline_path("configs", "single_gpu", kHere),
            "configs/baselines/single_gpu/nvidia_h200-700w-580-2.11.json");
}

TEST(Baseline, MissingFilesAreInvalid) {
  const BaselineSet set = load_baseline("/nowhere/b.json", "single_gpu", kHere);
  EXPECT_EQ(set.problem,
            "BASELINE_INVALID: /nowhere/b.json does not exist; promote a run on this hardware");
}

struct BadBaseline {
  const char* path;
  json value;
  const char* problem;
};

class InvalidBaseline : public testing::TestWithParam<BadBaseline> {};

TEST_P(InvalidBaseline, GivesNoValueAndReportsWhy) {
  json document = good();
  document[json::json_pointer(GetParam().path)] = GetParam().value;
  const BaselineSet set = load(document.dump());
  EXPECT_THAT(set.problem, StartsWith("BASELINE_INVALID: "));
  EXPECT_THAT(set.problem, HasSubstr(GetParam().problem));
  EXPECT_TRUE(set.values.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Fields, InvalidBaseline,
    testing::Values(BadBaseline{"/metrics/0/value", 0, "must have a value above 0"},
                    BadBaseline{"/metrics/0/value", -9000, "must have a value above 0"},
                    BadBaseline{"/metrics/0/value", nullptr, "must be a number"},
                    BadBaseline{"/metrics/0/value", "9000", "must be a number"},
                    BadBaseline{"/metrics/0/value", 9101, "outside its interval"},
                    BadBaseline{"/metrics/0/n", 0, "n < 1"},
                    BadBaseline{"/metrics/0/unit", "ms", "must end in _ms"},
                    BadBaseline{"/metrics", json::array(), "holds no metric"},
                    BadBaseline{"/metrics/1", good()["metrics"][0], "is given twice"},
                    BadBaseline{"/hardware/sku", "NVIDIA A100", "is of other hardware"},
                    BadBaseline{"/hardware/power_limit_w", 350, "is of other hardware"},
                    BadBaseline{"/hardware/driver_major", 550, "is of other hardware"},
                    BadBaseline{"/hardware/libtorch", "2.4", "is of other hardware"},
                    BadBaseline{"/runbook", "smoke_cpu", "is of runbook 'smoke_cpu'"},
                    BadBaseline{"/reason", "", "lacks the build"},
                    BadBaseline{"/schema", "x", "schema must be"},
                    BadBaseline{"/extra", 1, "unknown key 'extra'"}));

TEST(Baseline, TextThatIsNoBaselineIsInvalid) {
  for (const char* text : {"", "{", "[]", "{\"metrics\": 1e999}", "\xff"})
    EXPECT_THAT(load(text).problem, StartsWith("BASELINE_INVALID: ")) << text;
}

TEST(Hardware, ShippedCardsAreFoundByTheirNames) {
  const auto cards = load_hardware(source_path("configs"));
  ASSERT_TRUE(find_hardware(cards, "NVIDIA H200"));
  EXPECT_EQ(find_hardware(cards, "NVIDIA H200")->name, "h200");
  EXPECT_EQ(find_hardware(cards, "NVIDIA A100 80GB PCIe")->name, "a100_80gb_pcie");
  EXPECT_FALSE(find_hardware(cards, "Tesla T4"));
}

TEST(Hardware, ErrorsAreNamed) {
  TempConfigs configs;
  const auto text = file_text(source_path("configs/hardware/h200.json"));
  configs.write("hardware/h100.json", text);
  const auto load = [&] { load_hardware(configs.dir()); };
  EXPECT_THAT(config_error_of(load), HasSubstr(":2:11: name must be that of the file, 'h100'"));
  configs.write("hardware/h100.json", with(with(text, "\"h200\"", "\"h100\""), "989", "0"));
  EXPECT_THAT(config_error_of(load), HasSubstr("bf16_tflop_s must be above 0"));
}

}  // namespace
}  // namespace harness
