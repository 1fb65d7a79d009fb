// What nsa-eval refuses and with which message, and how it reads files: options, keys, types.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>

#include "suites/eval/tests/testing.h"

namespace suites::eval {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Eval : public ::testing::Test {
 protected:
  Eval() { at::set_num_threads(1); }

  /// The error of the small random file after a change.
  std::string error(const std::function<void(TensorFile&, EvalOptions&)>& change) {
    TensorFile changed = file;
    EvalOptions options;
    change(changed, options);
    return error_of(changed, options);
  }
  std::string config_error(const std::function<void(json&)>& change) {
    return error([&](TensorFile& f, EvalOptions&) { set_config(f, change); });
  }
  static void set_config(TensorFile& f, const std::function<void(json&)>& change) {
    json config = json::parse(f.metadata["config"]);
    change(config);
    f.metadata["config"] = config.dump();
  }

  RandomFile random;
  TensorFile file = random.make();
};

FileTensor zeros(const std::vector<int64_t>& shape, Dtype dtype = Dtype::kF64) {
  size_t bytes = size_bytes(dtype);
  for (const int64_t axis : shape) bytes *= static_cast<size_t>(axis);
  return {dtype, shape, std::vector<std::byte>(bytes)};
}

TEST_F(Eval, MissingAndMisspeltTensors) {
  EXPECT_THAT(error([](TensorFile& f, EvalOptions&) { f.tensors.erase("v_win"); }),
              HasSubstr("v_win: the input file has no such tensor"));
  EXPECT_THAT(error([](TensorFile& f, EvalOptions&) {
                auto node = f.tensors.extract("k_cmp_src");
                node.key() = "k_cmp_scr";
                f.tensors.insert(std::move(node));
              }),
              HasSubstr("k_cmp_src: the input file has no such tensor; is it 'k_cmp_scr'?"));
  EXPECT_THAT(error([](TensorFile& f, EvalOptions&) {
                f.tensors["block_ids"] = zeros({2, 40, 2, 4}, Dtype::kI32);
              }),
              HasSubstr("block_ids: unknown tensor; did you mean 'block_idx'?"));
  EXPECT_THAT(error([](TensorFile& f, EvalOptions& o) {
                o.grad = true;
                f.tensors.erase("d_o");
              }),
              HasSubstr("d_o: the input file has no such tensor"));
}

TEST_F(Eval, OtherTensorsAreNamedAndExpectedOnesAreNot) {
  file.tensors["o"] = zeros({1});
  file.tensors["mine"] = zeros({1}, Dtype::kBool);
  file.tensors["expected.o"] = zeros({1});
  file.tensors["w1"] = zeros({1});
  EXPECT_THAT(evaluate(file, {}).warnings,
              ElementsAre("the input has tensors that are not read: mine, o"));
  EXPECT_THAT(evaluate(random.make(), {}).warnings, IsEmpty());
}

TEST_F(Eval, ShapesAndTypesAreNamed) {
  const auto with = [&](const char* name, const FileTensor& tensor) {
    return error([&](TensorFile& f, EvalOptions&) { f.tensors[name] = tensor; });
  };
  EXPECT_THAT(with("k_sel", zeros({2, 40, 2, 7})),
              HasSubstr("k_sel: shape must be [B, S, Hkv, dk] = [2, 40, 2, 8], got [2, 40, 2, 7]"));
  EXPECT_THAT(with("q", zeros({2, 40, 6})),
              HasSubstr("q: must be of rank 4 [B, S, heads, .] without cu_seqlens, got rank 3"));
  EXPECT_THAT(with("q", zeros({2, 40, 6, 8}, Dtype::kI32)),
              HasSubstr("q: dtype must be F64, F32, F16, BF16 or F8, got I32"));
  EXPECT_THAT(with("block_idx", zeros({2, 40, 2, 4}, Dtype::kU8)),
              HasSubstr("block_idx: dtype must be I32 or I64, got U8"));
  EXPECT_THAT(with("block_idx", zeros({2, 40, 3, 4}, Dtype::kI32)),
              HasSubstr("block_idx: shape must be [B, S, Hkv, K] = [2, 40, 2, any]"));
  EXPECT_THAT(with("ranges", zeros({2, 40, 2, 4, 3}, Dtype::kI32)), HasSubstr("ranges: shape"));
  EXPECT_THAT(with("scores", zeros({2, 40, 2, 4})),
              HasSubstr("scores: shape must be [B, S, Hkv, ceil(S/l')] = [2, 40, 2, 3]"));
  EXPECT_THAT(with("gates", zeros({2, 40, 5, 3})), HasSubstr("gates: shape"));
  EXPECT_THAT(with("q", zeros({})), HasSubstr("q: must be of rank 4"));
  EXPECT_THAT(with("cu_seqlens", zeros({2}, Dtype::kI32)),
              HasSubstr("q: must be of rank 3 [T, heads, .] with cu_seqlens, got rank 4"));
}

TEST_F(Eval, ConfigurationIsNamedInTheWordsOfTheFile) {
  const auto cfg = [this](const char* key, const json& value) {
    return config_error([&](json& c) { c["cfg"][key] = value; });
  };
  EXPECT_THAT(cfg("Hkv", 4), HasSubstr("config: cfg.Hkv must be a divisor of cfg.Hq = 6, got 4"));
  EXPECT_THAT(cfg("d", 3), HasSubstr("config: cfg.d must be a divisor of cfg.l = 8, got 3"));
  EXPECT_THAT(cfg("l", 20), HasSubstr("config: cfg.l must be at most cfg.lsel = 16, got 20"));
  EXPECT_THAT(cfg("n", 2), HasSubstr("config: cfg.n must be at least cfg.n_initial + cfg.n_local"));
  EXPECT_THAT(cfg("w", -1), HasSubstr("config: cfg.w must be at least 0, got -1"));
  EXPECT_THAT(cfg("w", 1.5), HasSubstr("config: cfg.w must be a whole number, got 1.5"));
  EXPECT_THAT(cfg("n", 1e20), HasSubstr("config: cfg.n must be a whole number"));
  EXPECT_THAT(cfg("n", uint64_t{1} << 63), HasSubstr("config: cfg.n must be at most 1073741824"));
  EXPECT_THAT(cfg("phi", "max"), HasSubstr("cfg.phi has unknown value \"max\", known are mean"));
  EXPECT_THAT(cfg("heads", 1), HasSubstr("unknown key cfg.heads = 1, known are Hq"));
  EXPECT_THAT(cfg("rope_base", -1), HasSubstr("config: rope_base must be a positive"));
  EXPECT_THAT(cfg("rope_pairs", "neox"),
              HasSubstr("cfg.rope_pairs has unknown value \"neox\", known are interleaved"));
  EXPECT_THAT(cfg("scale", 0), HasSubstr("config: cfg.scale must be a positive number, got 0"));
  EXPECT_THAT(cfg("scale_win", "half"),
              HasSubstr("config: cfg.scale_win must be a positive number, got \"half\""));
  EXPECT_THAT(cfg("dk", 16), HasSubstr("q: shape must be [B, S, Hq, dk] = [2, 40, 6, 16]"));
  EXPECT_THAT(config_error([](json& c) { c["cfg"].erase("lsel"); }),
              HasSubstr("config: cfg.lsel is missing"));
  EXPECT_THAT(config_error([](json& c) { c["B"] = 3; }),
              HasSubstr("config: B must be 2 as in the shape of q, got 3"));
  EXPECT_THAT(config_error([](json& c) { c["S"] = 41; }),
              HasSubstr("config: S must be 40 as in the shape of q, got 41"));
  EXPECT_THAT(config_error([](json& c) { c["kind"] = "backward"; }),
              HasSubstr("config: kind must be forward, varlen"));
  EXPECT_THAT(config_error([](json& c) { c["kind"] = "varlen"; }),
              HasSubstr("cu_seqlens: the input file has no such tensor"));
  EXPECT_THAT(error([](TensorFile& f, EvalOptions&) { f.metadata.clear(); }),
              HasSubstr("no metadata key 'config'; give --config FILE"));
  EXPECT_THAT(
      error([](TensorFile& f, EvalOptions&) { f.metadata["config"] = "{\"B\": 1, \"B\": 2}"; }),
      HasSubstr("config: 'B': duplicate key"));
  EXPECT_THAT(error([](TensorFile& f, EvalOptions&) { f.metadata["config"] = "{"; }),
              HasSubstr("config: text is not JSON"));
}

TEST_F(Eval, OptionsThatDoNotFitAreNamed) {
  const auto with = [&](const std::function<void(EvalOptions&)>& change) {
    return error([&](TensorFile&, EvalOptions& o) { change(o); });
  };
  EXPECT_THAT(
      with([](EvalOptions& o) { o.backend = "dense"; }),
      HasSubstr("--backend dense: --op layer knows gather, packed, varlen, masked, fused, cpu"));
  EXPECT_THAT(with([](EvalOptions& o) { o.op = "compress", o.backend = "gather"; }),
              HasSubstr("--backend gather: --op compress has one backend"));
  EXPECT_THAT(with([](EvalOptions& o) { o.device = "tpu"; }), HasSubstr("got \"tpu\""));
  EXPECT_THAT(with([](EvalOptions& o) { o.device = "cuda:99"; }),
              HasSubstr("device \"cuda:99\" is not there"));
  EXPECT_THAT(with([](EvalOptions& o) { o.op = "win_attn", o.mode = "decode"; }),
              HasSubstr("--mode decode: --op win_attn has no modes"));
  EXPECT_THAT(with([](EvalOptions& o) { o.prefill = {3}; }),
              HasSubstr("--prefill belongs to --mode decode"));
  EXPECT_THAT(with([](EvalOptions& o) { o.mode = "decode", o.prefill = {41}; }),
              HasSubstr("--prefill must be in 0..S = 40, got 41"));
  EXPECT_THAT(with([](EvalOptions& o) { o.mode = "decode", o.prefill = {1, 2, 3}; }),
              HasSubstr("--prefill must be one number or B = 2 numbers, got 3"));
  EXPECT_THAT(with([](EvalOptions& o) { o.mode = "decode", o.grad = true; }),
              HasSubstr("--grad: --mode decode keeps no graph"));
  EXPECT_THAT(with([](EvalOptions& o) { o.op = "scores", o.grad = true; }),
              HasSubstr("--grad: --op scores has no gradient"));
  EXPECT_THAT(error([](TensorFile& f, EvalOptions& o) {
                o.mode = "sequential";
                f.tensors["ranges"] = zeros({2, 40, 2, 1, 2}, Dtype::kI32);
              }),
              HasSubstr("ranges: --mode sequential makes its own"));
}

TEST_F(Eval, GatesAndGateLogitsFollowTheConfiguration) {
  EXPECT_THAT(config_error([](json& c) { c["cfg"]["gate"] = "softmax"; }),
              HasSubstr("gate_logits: cfg.gate = softmax takes this tensor, and the input file has "
                        "'gates'; set cfg.gate to none"));
  EXPECT_THAT(error([](TensorFile& f, EvalOptions&) {
                auto node = f.tensors.extract("gates");
                node.key() = "gate_logits";
                f.tensors.insert(std::move(node));
              }),
              HasSubstr("gates: cfg.gate = none takes this tensor, and the input file has "
                        "'gate_logits'; set cfg.gate to softmax or sigmoid"));
}

TEST_F(Eval, BadDocuments) {
  random.kind = "varlen";
  random.B = 1;
  for (const auto& [offsets, what] : std::vector<std::pair<std::vector<int64_t>, const char*>>{
           {{1, 40}, "cu_seqlens[0] must be 0, got 1"},
           {{0, 30, 20, 40}, "cu_seqlens[2] must be at least cu_seqlens[1] = 30, got 20"},
           {{0, 39}, "cu_seqlens[1] must be T = 40, got 39"}}) {
    random.cu_seqlens = offsets;
    EXPECT_THAT(error_of(random.make(), {}), HasSubstr(what));
  }
  random.cu_seqlens = {0, 40};
  EvalOptions decode;
  decode.mode = "decode";
  EXPECT_THAT(error_of(random.make(), decode),
              HasSubstr("--mode decode: packed documents (cu_seqlens) run in batched mode only"));
}

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

TEST_F(Eval, StageValuesThatAnOpMakesItselfAreRefused) {
  const TensorFile own = evaluate(file, {}).file;
  const auto refused = [&](const char* op, const char* name) {
    TensorFile with = file;
    with.tensors[name] = own.tensors.at(name);
    EvalOptions options;
    options.op = op;
    return error_of(with, options);
  };
  for (const char* name : {"q_rot", "k_cmp", "v_cmp", "p_cmp"})
    EXPECT_THAT(refused("layer", name),
                HasSubstr(std::string(name) + ": --op layer computes this"));
  for (const char* name : {"k_cmp", "v_cmp"})
    EXPECT_THAT(refused("compress", name),
                HasSubstr(std::string(name) + ": --op compress computes this"));
  EXPECT_EQ(refused("scores", "k_cmp"), "");
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

TEST_F(Eval, SwitchesThatTheRunIgnoresAreErrors) {
  const auto with = [&](const char* name, const char* value, const EvalOptions& options) {
    setenv(name, value, 1);
    const std::string error = error_of(file, options);
    unsetenv(name);
    return error;
  };
  EvalOptions options;
  EXPECT_THAT(with("NSA_PREFILL_BATCHED", "0", options),
              HasSubstr("NSA_PREFILL_BATCHED=0 (environment) is ignored by nsa-eval --op layer "
                        "--mode batched"));
  options.mode = "decode";
  EXPECT_EQ(with("NSA_PREFILL_BATCHED", "0", options), "");
  options.mode = "";
  options.op = "win_attn";
  EXPECT_THAT(with("NSA_USE_SEL_MASK", "1", options), HasSubstr("is ignored by nsa-eval"));
  EXPECT_EQ(with("NSA_USE_FA2_WIN", "1", options), "");
  EXPECT_THAT(with("NSA_USE_FA3", "1", options),
              HasSubstr("the nearest known name is NSA_USE_FA2"));
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

TEST_F(Eval, SizesThatAStageDependsOnMustBeThere) {
  const auto without = [&](const char* op, const char* key) {
    return error([&](TensorFile& f, EvalOptions& o) {
      o.op = op;
      set_config(f, [&](json& c) { c["cfg"].erase(key); });
    });
  };
  for (const auto& [op, key] : {std::pair{"layer", "w"},
                                {"sel_attn", "n"},
                                {"sel_attn", "l"},
                                {"win_attn", "w"},
                                {"select", "n_local"},
                                {"ranges", "d"},
                                {"scores", "lsel"},
                                {"compress", "l"}})
    EXPECT_EQ(without(op, key), "config: cfg." + std::string(key) + " is missing") << op;
  EXPECT_EQ(without("win_attn", "lsel"), "");
  EXPECT_EQ(without("compress", "n"), "");
}

TEST_F(Eval, SizesBeyondReasonAreRefused) {
  EXPECT_THAT(config_error([](json& c) { c["cfg"]["n"] = 1 << 30; }),
              HasSubstr("config: cfg.n = 1073741824 makes block_idx of more than 2^31 elements"));
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
