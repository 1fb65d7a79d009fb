// The kind `validation` in small: what it reports of each attention and seed, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "nsa/program/input_error.h"
#include "nsa/train/data/shard_writer.h"
#include "suites/phases/learning/size_variants.h"
#include "suites/phases/testing.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// A corpus of text with a tenth kept out; the folder that holds it.
std::string small_text() {
  const std::string root = testing::TempDir() + "/" + std::to_string(::getpid()) + "_text";
  nsa::train::CorpusTarget target(root + "/letters", {});
  nsa::train::ShardWriter writer(target, "letters", {.block_tokens = 512, .val_every = 10});
  std::string text;
  for (int i = 0; i < 800; ++i) text += "In the beginning " + std::to_string(i * i % 997) + "\n";
  writer.add_document(text);
  writer.finish();
  return root;
}

json small_validation(const json& more = json::object()) {
  static const std::string root = small_text();
  json args = {{"model", "tiny_cpu"}, {"data", "letters"}, {"data_root", root}, {"S", 64},
               {"seeds", 2},          {"steps", 3},        {"batch", 2},        {"val_rows", 4},
               {"warmup", 1},         {"threads", 1}};  // figures come as arms end
  args.update(more);
  return args;
}

std::map<std::string, std::vector<double>> figures_of(const json& more) {
  const RecordedCase recorded("validation", small_validation(more));
  EXPECT_EQ(run_validation(recorded.one()), "");
  std::map<std::string, std::vector<double>> figures;
  for (const json& line : recorded.lines("metric")) figures[line["name"]].push_back(line["value"]);
  return figures;
}

TEST(ValidationPhase, EveryAttentionIsHeldAgainstDenseOfTheSameSeed) {
  const RecordedCase recorded("validation", small_validation());
  EXPECT_EQ(run_validation(recorded.one()), "");
  std::map<std::string, std::vector<double>> figures;
  for (const json& line : recorded.lines("metric")) figures[line["name"]].push_back(line["value"]);
  ASSERT_EQ(figures["dense.loss_nat"].size(), 2U);
  ASSERT_EQ(figures["nsa.gap_nat"].size(), 2U);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_DOUBLE_EQ(figures["nsa.gap_nat"][i],
                     figures["nsa.loss_nat"][i] - figures["dense.loss_nat"][i]);
  EXPECT_EQ(figures["seeds.compared_count"].at(0), 2);
  const auto tables = recorded.lines("table");
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_EQ(tables[0]["rows"].size(), 4U);
  EXPECT_THAT(tables[0]["title"], HasSubstr("letters"));
  // Two layers, four quarters of a row; softmax gates add up to 1.
  EXPECT_EQ(tables[1]["id"], "gates");
  ASSERT_EQ(tables[1]["rows"].size(), 8U);
  EXPECT_EQ(tables[1]["rows"][1][1], "16 to 31");
  for (const json& row : tables[1]["rows"])
    EXPECT_NEAR(row[2].get<double>() + row[3].get<double>() + row[4].get<double>(), 1, 1e-5);
}

/// The kept-out rows are the same for all seeds, and a repetition gives the same figures.
TEST(ValidationPhase, FiguresComeBackAndDependOnTheSeed) {
  const auto once = figures_of(json::object()), again = figures_of(json::object());
  EXPECT_EQ(once, again);
  EXPECT_NE(once.at("dense.loss_nat")[0], once.at("dense.loss_nat")[1]);
}

TEST(ValidationPhase, SizesOfNsaAreVariantsToo) {
  const auto figures = figures_of({{"seeds", 1},
                                   {"S", 128},
                                   {"attention",
                                    {"dense", "nsa", "double_top_n", "half_window", "double_window",
                                     "double_blocks", "no_selected"}}});
  for (const char* name :
       {"double_top_n", "half_window", "double_window", "double_blocks", "no_selected"}) {
    ASSERT_EQ(figures.at(std::string(name) + ".gap_nat").size(), 1U) << name;
    EXPECT_NE(figures.at(std::string(name) + ".loss_nat"), figures.at("nsa.loss_nat")) << name;
  }
}

TEST(ValidationPhase, AModelThatLearnsNothingIsBehind) {
  const auto figures = figures_of({{"fault", "learns_nothing"}, {"steps", 20}, {"seeds", 1}});
  EXPECT_GT(figures.at("nsa.gap_nat")[0], 0.1);
}

TEST(ValidationPhase, RefusesWhatItDoesNotHave) {
  const auto error = [](const json& more) -> std::string {
    try {
      const RecordedCase recorded("validation", small_validation(more));
      run_validation(recorded.one());
    } catch (const std::exception& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error({{"attention", {"dense", "quarter_top_n"}}}),
              HasSubstr("softmax_gates, got \"quarter_top_n\""));
  EXPECT_THAT(error({{"attention", {"dense", "half_top_n"}}}),
              HasSubstr("top_n must be at least num_initial + num_local = 1 + 2, got 2"));
  EXPECT_THAT(error({{"data", "nothing"}}), HasSubstr("nothing"));
  EXPECT_THAT(error({{"S", 100000}}), HasSubstr("letters"));
}

TEST(SizeVariants, ChangeOneSize) {
  const nsa::ModelConfig c = nsa::load_model_config("m7c_125m", nsa::model_config_folders());
  EXPECT_EQ(with_variant(c, "half_top_n").attention.top_n, 8);
  EXPECT_EQ(with_variant(c, "double_window").attention.window, 1024);
  EXPECT_EQ(with_variant(c, "double_kv_heads").attention.num_kv_heads, 4);
  EXPECT_EQ(with_variant(c, "softmax_gates").attention.gate, nsa::GateActivation::kSoftmax);
  const nsa::NsaConfig blocks = with_variant(c, "double_blocks").attention;
  EXPECT_EQ(blocks.block_size, 64);
  EXPECT_EQ(blocks.block_stride, 32);
  EXPECT_EQ(blocks.sel_block_size, 128);
  EXPECT_EQ(blocks.top_n, c.attention.top_n);
}

}  // namespace
}  // namespace suites
