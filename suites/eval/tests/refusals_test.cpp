// What nsa-eval refuses and with which message.
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>

#include "suites/eval/tests/testing.h"

namespace suites::eval {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace suites::eval
