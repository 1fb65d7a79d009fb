#include "nsa/train/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/testing/paths.h"
#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

TEST(TrainOptions, ArgsAreStrict) {
  TrainOptions o;
  apply_args({{"model", "m"}, {"steps", 5}, {"lr", 1}, {"first_step_s", 60}}, "case a", o);
  EXPECT_EQ(o.model, "m");
  EXPECT_EQ(o.steps, 5);
  const auto error = [](const nlohmann::json& args) {
    TrainOptions options;
    try {
      apply_args(args, "case a", options);
      options.validate();
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(error({{"stesp", 5}}),
              HasSubstr("case a: unknown key \"stesp\"; did you mean \"steps\"?"));
  EXPECT_THAT(error({{"steps", "5"}}), HasSubstr("\"steps\" must be an integer, got \"5\""));
  EXPECT_THAT(error({{"steps", 0}}), HasSubstr("training option steps must be >= 1, got 0"));
  EXPECT_THAT(error({{"min_lr", 1.0}}), HasSubstr("training option min_lr must be <= lr"));
  EXPECT_THAT(error({{"dtype", "fp8"}}), HasSubstr("must be fp32, bf16 or fp64, got \"fp8\""));
  EXPECT_THAT(error(nlohmann::json::array()), HasSubstr("expected an object, got array"));
}

/// The described options as arguments of the phase kind: name to doc and default.
struct KindArguments {
  std::map<std::string, nlohmann::json> all;
  template <class T>
  void operator()(const base::OptionDoc& option, T TrainOptions::* member) {
    if (!option.in_kind) return;
    const nlohmann::json value = TrainOptions().*member;
    all[std::string(option.name)] = {{"doc", option.doc}, {"default", value}};
  }
};

TEST(TrainOptions, TheKindInConfigsDeclaresThemAlike) {
  std::ifstream file(base::source_dir() + "/configs/kinds/nsa-train.json");
  const auto kind = nlohmann::json::parse(file);
  KindArguments described;
  TrainOptions::describe(described);
  const std::set<std::string> of_engine = {"first_step_s", "rate_floor"};
  std::map<std::string, nlohmann::json> declared;
  for (const auto& arg : kind.at("args"))
    if (!of_engine.contains(arg.at("name")))
      declared[arg.at("name")] = {{"doc", arg.at("doc")}, {"default", arg.at("default")}};
  EXPECT_EQ(nlohmann::json(declared), nlohmann::json(described.all));
}

}  // namespace
}  // namespace nsa::train
