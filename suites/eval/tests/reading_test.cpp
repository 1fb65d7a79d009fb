// How nsa-eval reads files and writes results: overriding keys, types, counts, what ran.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "suites/eval/tests/testing.h"

namespace suites::eval {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Eval, ConfigFileOverridesKeyByKey) {
  const TensorFile narrow = evaluate(file, {}, R"({"cfg": {"n": 3}})").file;
  EXPECT_EQ(narrow.tensors.at("block_idx").shape, (std::vector<int64_t>{2, 40, 2, 3}));
  EXPECT_EQ(json::parse(narrow.metadata.at("config"))["cfg"]["n"], 3);
  TensorFile bare = file;
  const std::string config = bare.metadata.at("config");
  bare.metadata.clear();
  EXPECT_EQ(evaluate(bare, {}, config).file.tensors.at("o").bytes,
            evaluate(file, {}).file.tensors.at("o").bytes);
  EXPECT_THAT(error_of(file, {}, R"({"S": 12})"), HasSubstr("config: S must be 40"));
  const TensorFile scaled = evaluate(file, {}, R"({"cfg": {"scale": 2, "scale_sel": 3}})").file;
  const json cfg = json::parse(scaled.metadata.at("config"))["cfg"];
  EXPECT_EQ(cfg["scale_cmp"], 2);
  EXPECT_EQ(cfg["scale_sel"], 3);
  EXPECT_EQ(cfg["scale_win"], 2);
}

TEST_F(Eval, ValuesAreRoundedToTheTypeOnce) {
  // 1 + 2^-11 + 2^-40 rounds up in half precision; by way of float it would go down.
  const double above = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  RandomFile plain;
  plain.cfg["rope"] = "none";
  file = plain.make();
  file.tensors["q"] = from_doubles({2, 40, 6, 8}, std::vector<double>(3840, above), Dtype::kF64);
  EvalOptions options;
  options.dtype = "fp16";
  const FileTensor q = evaluate(file, options).file.tensors.at("q_rot");
  EXPECT_EQ(q.dtype, Dtype::kF16);
  EXPECT_EQ(to_doubles(q)[0], 1 + std::ldexp(1.0, -10));
}

TEST_F(Eval, OutputsHaveTheRequestedType) {
  for (const auto& [name, dtype, accumulated] : {std::tuple{"fp64", Dtype::kF64, Dtype::kF64},
                                                 {"fp32", Dtype::kF32, Dtype::kF32},
                                                 {"bf16", Dtype::kBF16, Dtype::kF32},
                                                 {"fp16", Dtype::kF16, Dtype::kF32}}) {
    EvalOptions options;
    options.dtype = name;
    options.grad = true;
    const TensorFile out = evaluate(file, options).file;
    EXPECT_EQ(out.tensors.at("o").dtype, dtype) << name;
    EXPECT_EQ(out.tensors.at("d_q").dtype, dtype) << name;
    EXPECT_EQ(out.tensors.at("scores").dtype, accumulated) << name;
    EXPECT_EQ(out.tensors.at("lse_sel").dtype, accumulated) << name;
    EXPECT_EQ(out.tensors.at("block_idx").dtype, Dtype::kI32) << name;
  }
}

TEST_F(Eval, ScoresKeepTheAccumulationType) {
  // Two scores that round to the same bf16: the higher one must still be selected.
  random.S = 80;
  random.cfg["n"] = 4;
  file = random.make();
  std::vector<double> scores(2 * 80 * 2 * 5, 1.0);
  for (size_t i = 2; i < scores.size(); i += 5) scores[i] = 1.0 + std::ldexp(1.0, -20);
  file.tensors["scores"] = from_doubles({2, 80, 2, 5}, scores, Dtype::kF64);
  EvalOptions options;
  options.op = "select";
  options.dtype = "bf16";
  const auto ids = to_integers(evaluate(file, options).file.tensors.at("block_idx"));
  EXPECT_EQ(std::vector<int64_t>(ids.end() - 4, ids.end()), (std::vector<int64_t>{0, 2, 3, 4}));
}

TEST_F(Eval, LargeProbabilitiesAreWrittenOnRequest) {
  random.B = 1;
  random.S = 1300;  // x 6 heads x 324 blocks: above two million
  file = random.make();
  EvalOptions options;
  options.op = "scores";
  EXPECT_FALSE(evaluate(file, options).file.has("p_cmp"));
  options.p_cmp = true;
  EXPECT_EQ(evaluate(file, options).file.tensors.at("p_cmp").shape,
            (std::vector<int64_t>{1, 1300, 6, 324}));
}

/// Rows [.., K] of integers in reverse.
FileTensor reversed_rows(const FileTensor& tensor, Dtype dtype) {
  std::vector<int64_t> ids = to_integers(tensor);
  const auto width = tensor.shape.back();
  for (auto row = ids.begin(); row != ids.end(); row += width) std::reverse(row, row + width);
  return from_integers(tensor.shape, ids, dtype);
}

TEST_F(Eval, GivenIdsAreASet) {
  const TensorFile own = evaluate(file, {}).file;
  for (const Dtype dtype : {Dtype::kI32, Dtype::kI64}) {
    file.tensors["block_idx"] = reversed_rows(own.tensors.at("block_idx"), dtype);
    for (const char* op : {"layer", "sel_attn"}) {
      EvalOptions options;
      options.op = op;
      const Evaluated out = evaluate(file, options);
      EXPECT_EQ(out.file.tensors.at("o_sel").bytes, own.tensors.at("o_sel").bytes) << op;
      EXPECT_EQ(out.file.tensors.at("ranges").bytes, own.tensors.at("ranges").bytes) << op;
      EXPECT_THAT(out.warnings, IsEmpty()) << op;
    }
  }
}

TEST_F(Eval, OpRangesCountsIgnoredIds) {
  EvalOptions options;
  options.op = "ranges";
  file = {};
  file.metadata["config"] = R"({"B": 1, "S": 3, "cfg": {"lsel": 1}})";
  const auto warnings = [&](const std::vector<int64_t>& ids, Dtype dtype) {
    file.tensors["block_idx"] =
        from_integers({1, 3, 1, static_cast<int64_t>(ids.size()) / 3}, ids, dtype);
    return evaluate(file, options).warnings;
  };
  EXPECT_THAT(warnings({0, -1, 0, 1, 0, 2}, Dtype::kI32), IsEmpty());
  EXPECT_THAT(warnings({0, -1, 1, 0, 2, 0}, Dtype::kI32),
              ElementsAre(HasSubstr("block_idx: 2 ids do not ascend and were ignored")));
  EXPECT_THAT(warnings({0, 0, 1, 1, 2, 2}, Dtype::kI64),
              ElementsAre(HasSubstr("3 ids do not ascend")));
  EXPECT_THAT(
      warnings({int64_t{1} << 33, 0, -7, 1, 2, 1}, Dtype::kI64),
      ElementsAre(HasSubstr("2 ids lie outside 0..floor(t/l')"), HasSubstr("1 ids do not ascend")));
}

TEST_F(Eval, CallsAreCountedOnce) {
  random.S = 25;
  file = random.make();
  const auto counts = [&](const char* mode) {
    EvalOptions options;
    options.mode = mode;
    const json ran = json::parse(evaluate(file, options).file.metadata.at("ran"));
    std::set<int64_t> all;
    for (const auto& [stage, rows] : ran.items())
      for (const json& row : rows)
        if (stage != "compress") all.insert(row.at("count").get<int64_t>());
    return all;
  };
  EXPECT_THAT(counts("batched"), ElementsAre(1));
  EXPECT_THAT(counts("sequential"), ElementsAre(25));
  EXPECT_THAT(counts("decode"), ElementsAre(25));
}

TEST_F(Eval, EightBitFloatsAreRead) {
  FileTensor& q = file.tensors["q"];
  const std::vector<double> values = to_doubles(q);
  for (const Dtype dtype : {Dtype::kF8E4M3, Dtype::kF8E5M2}) {
    const FileTensor narrow = from_doubles(q.shape, values, dtype);
    TensorFile wide = file, eight = file;
    wide.tensors["q"] = from_doubles(q.shape, to_doubles(narrow), Dtype::kF64);
    eight.tensors["q"] = narrow;
    for (const char* type : {"fp64", "fp32", "bf16", "fp16"}) {
      EvalOptions options;
      options.dtype = type;
      EXPECT_EQ(evaluate(eight, options).file.tensors.at("o").bytes,
                evaluate(wide, options).file.tensors.at("o").bytes)
          << type;
    }
  }
  file.tensors["scale"] = zeros({3}, Dtype::kF8E4M3);
  file.tensors["count"] = zeros({3}, Dtype::kU16);
  EXPECT_THAT(evaluate(file, {}).warnings,
              ElementsAre("the input has tensors that are not read: count, scale"));
}

TEST_F(Eval, RecordReportsWhatRan) {
  EvalOptions options;
  options.backend = "packed,v1_bulk";
  const json ran = json::parse(evaluate(file, options).file.metadata.at("ran"));
  EXPECT_EQ(ran["sel_attn"][0]["backend"], "packed");
  EXPECT_EQ(ran["ranges"][0]["backend"], "v1_bulk");
  for (const char* stage : {"compress", "cmp_attn", "select", "win_attn", "gate"})
    EXPECT_EQ(ran[stage][0]["backend"], "plain") << stage;
  options.backend = "flash";
  const Evaluated not_honoured = evaluate(file, options);
  EXPECT_THAT(not_honoured.warnings,
              ::testing::Contains(AllOf(HasSubstr("win_attn: flash was asked for, plain ran"))));
}

TEST_F(Eval, IgnoredIdsAreCounted) {
  std::vector<int64_t> ids(2 * 40 * 2 * 4, -1);
  ids[0] = 7;
  ids[4] = INT32_MIN;
  file.tensors["block_idx"] = from_integers({2, 40, 2, 4}, ids, Dtype::kI32);
  EXPECT_THAT(evaluate(file, {}).warnings,
              ElementsAre("block_idx: 2 ids lie outside 0..floor(t/l') and were ignored"));
}

TEST_F(Eval, ModeFollowsTheKindWhereItCan) {
  random.kind = "decode";
  random.prefill = {5, 40};
  file = random.make();
  const auto mode = [](const TensorFile& f, const EvalOptions& options) {
    const TensorFile out = evaluate(f, options).file;
    const std::string ran = json::parse(out.metadata.at("eval"))["mode"];
    EXPECT_EQ(out.has("reads"), ran == "decode");
    return ran;
  };
  EvalOptions options;
  EXPECT_EQ(mode(file, options), "decode");
  EXPECT_EQ(json::parse(evaluate(file, options).file.metadata.at("config"))["prefill"],
            json::array({5, 40}));
  options.prefill = {7};
  EXPECT_EQ(json::parse(evaluate(file, options).file.metadata.at("config"))["prefill"],
            json::array({7, 7}));
  options.prefill = {};
  options.mode = "sequential";
  EXPECT_EQ(mode(file, options), "sequential");
  options.mode = "";
  options.grad = true;
  EXPECT_EQ(mode(file, options), "batched");
  options.grad = false;
  file.tensors["ranges"] = zeros({2, 40, 2, 1, 2}, Dtype::kI32);
  EXPECT_EQ(mode(file, options), "batched");
}

TEST_F(Eval, NonFiniteInputsAreLegal) {
  std::vector<double> values = to_doubles(file.tensors.at("v_win"));
  values.back() = std::nan("");
  file.tensors["v_win"] = from_doubles({2, 40, 2, 6}, values, Dtype::kF64);
  const auto o = to_doubles(evaluate(file, {}).file.tensors.at("o"));
  EXPECT_TRUE(std::isnan(o.back()));
  EXPECT_TRUE(std::isfinite(o.front()));
}

}  // namespace
}  // namespace suites::eval
