#include "suites/reference_cases/case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "suites/reference_cases/judge.h"

namespace suites {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Ids of one row: t = 0 .. 3, l' = 2; hand-made, with an unknown order and a duplicate.
struct RangesFile {
  json config = {
      {"name", "tiny"}, {"kind", "ranges"}, {"B", 1}, {"S", 2}, {"cfg", {{"lsel", 1}, {"K", 2}}}};
  TensorFile file;
  RangesFile() {
    file.tensors["block_idx"] = from_integers({1, 2, 1, 2}, {0, 0, 1, 0}, Dtype::kI32);
    file.tensors["expected.ranges"] =
        from_integers({1, 2, 1, 2, 2}, {0, 1, 0, 0, 1, 2, 0, 0}, Dtype::kI32);
  }
  ReferenceCase load() {
    file.metadata["config"] = config.dump();
    const auto path = std::filesystem::path(::testing::TempDir()) / "tiny_case.safetensors";
    write_tensor_file(path, file);
    return load_case(path);
  }
};

std::string error_of(const std::function<void(RangesFile&)>& change) {
  RangesFile tiny;
  change(tiny);
  try {
    tiny.load();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ReferenceCase, AgreesAndReportsWhatItCompared) {
  const Judgement judgement = judge(RangesFile().load());
  EXPECT_TRUE(judgement.failures.empty());
  EXPECT_EQ(judgement.compared, std::vector<std::string>{"ranges: ranges"});
}

TEST(ReferenceCase, OneWrongIndexFails) {
  RangesFile tiny;
  tiny.file.tensors["expected.ranges"] =
      from_integers({1, 2, 1, 2, 2}, {0, 1, 0, 0, 0, 2, 0, 0}, Dtype::kI32);
  const Judgement judgement = judge(tiny.load());
  ASSERT_EQ(judgement.failures.size(), 1u);
  EXPECT_THAT(judgement.failures[0], HasSubstr("ranges: ranges: 1 at [0, 1, 0, 0, 0], expected 0"));
}

TEST(ReferenceCase, AnExpectedTensorNothingComparesFails) {
  RangesFile tiny;
  tiny.file.tensors["expected.surprise"] = from_doubles({1}, {0}, Dtype::kF64);
  const Judgement judgement = judge(tiny.load());
  ASSERT_EQ(judgement.failures.size(), 1u);
  EXPECT_EQ(judgement.failures[0], "nothing compares expected.surprise");
}

TEST(ReferenceCase, BadFilesAreNamed) {
  EXPECT_THAT(error_of([](RangesFile& f) { f.config["kind"] = "other"; }),
              HasSubstr("tiny_case.safetensors: config: kind must be"));
  EXPECT_THAT(error_of([](RangesFile& f) { f.config["S"] = 3; }),
              HasSubstr("config: S must be 2, got 3"));
  EXPECT_THAT(error_of([](RangesFile& f) { f.config["B"] = 2; }),
              HasSubstr("config: B must be 1, got 2"));
  EXPECT_THAT(error_of([](RangesFile& f) { f.config["cfg"].erase("lsel"); }),
              HasSubstr("config: cfg.lsel is missing"));
  EXPECT_THAT(error_of([](RangesFile& f) { f.config["cfg"]["wide"] = 1; }),
              HasSubstr("config: unknown key cfg.wide = 1"));
  EXPECT_THAT(error_of([](RangesFile& f) { f.config["cfg"]["phi"] = "max"; }),
              HasSubstr("config: cfg.phi has unknown value \"max\""));
  EXPECT_THAT(
      error_of([](RangesFile& f) { f.file.tensors["q"] = from_doubles({1}, {0}, Dtype::kF64); }),
      HasSubstr("unknown input tensor 'q' for kind ranges"));
  EXPECT_THAT(error_of([](RangesFile& f) { f.file.tensors.erase("expected.ranges"); }),
              HasSubstr("nothing to compare"));
  EXPECT_THAT(error_of([](RangesFile& f) { f.file.tensors.erase("block_idx"); }),
              HasSubstr("the input tensor of kind ranges is missing"));
}

}  // namespace
}  // namespace suites
