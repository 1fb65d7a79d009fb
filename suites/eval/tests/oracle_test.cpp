// Files of every kind, with configurations that no case of the folder has, against the oracle.
#include <ATen/Parallel.h>

#include "suites/eval/tests/testing.h"

namespace suites::eval {
namespace {

using nlohmann::json;

class EvalOracle : public ::testing::Test {
 protected:
  EvalOracle() { at::set_num_threads(1); }

  /// The file end to end in one mode, with gradients where the mode has them.
  void compare(const RandomFile& random, const std::string& mode) {
    SCOPED_TRACE(random.cfg.dump() + " B " + std::to_string(random.B) + " S " +
                 std::to_string(random.S) + " " + mode);
    EvalOptions options;
    options.mode = mode;
    options.grad = mode != "decode";
    const TensorFile file = random.make();
    const TensorFile out = evaluate(file, options).file;
    const auto expected = oracle_outputs(file, options.grad);
    EXPECT_GT(expect_agreement(
                  out, expected,
                  mode == "decode" ? std::set<std::string>{} : std::set<std::string>{"reads"}),
              14);
  }
};

json cfg_with(const json& changes) {
  json cfg = small_cfg();
  cfg.update(changes);
  return cfg;
}

TEST_F(EvalOracle, PhiRopeAndGatesInEveryMode) {
  int seed = 0;
  for (const char* phi : {"mean", "conv", "mlp"})
    for (const char* rope : {"before_pool", "block_start", "none"}) {
      RandomFile random;
      random.kind = "decode";
      const char* gates[] = {"none", "softmax", "sigmoid"};
      random.cfg = cfg_with({{"phi", phi}, {"rope", rope}, {"gate", gates[seed % 3]}});
      random.S = 37;
      random.prefill = {seed * 4, 37 - seed};
      random.shared_gates = seed % 2 == 1;
      random.seed = static_cast<unsigned>(++seed);
      compare(random, "batched");
      compare(random, "sequential");
      compare(random, "decode");
    }
}

TEST_F(EvalOracle, ScalesNoWindowAndHalfSplitPairs) {
  for (const json& changes :
       {json{{"scale", 0.5}}, json{{"scale", 0.5}, {"scale_sel", 1.5}},
        json{{"scale_cmp", 2}, {"scale_win", 0.1}}, json{{"w", 0}},
        json{{"rope_pairs", "half_split"}},
        json{{"rope_pairs", "half_split"}, {"rope", "block_start"}, {"phi", "conv"}}}) {
    RandomFile random;
    random.kind = "decode";
    random.cfg = cfg_with(changes);
    random.prefill = {7, 20};
    for (const char* mode : {"batched", "sequential", "decode"}) compare(random, mode);
  }
}

TEST_F(EvalOracle, OddSizes) {
  const std::vector<json> cfgs = {
      cfg_with({{"Hq", 16}, {"Hkv", 1}, {"dk", 14}, {"dv", 5}}),
      cfg_with({{"Hq", 3}, {"Hkv", 3}, {"l", 1}, {"d", 1}, {"lsel", 1}, {"n", 7}}),
      cfg_with({{"l", 12}, {"d", 4}, {"lsel", 20}, {"n", 5}, {"n_initial", 2}, {"n_local", 1}}),
      cfg_with({{"n", 100}, {"w", 1000}, {"dk", 7}, {"rope", "none"}, {"dv", 1}}),
      cfg_with({{"n_initial", 0}, {"n_local", 1}, {"n", 1}, {"w", 1}, {"rope_base", 500.5}})};
  for (const json& cfg : cfgs)
    for (const char* mode : {"batched", "sequential", "decode"}) {
      RandomFile random;
      random.kind = "decode";
      random.prefill = {5};
      random.cfg = cfg;
      random.S = 43;
      compare(random, mode);
    }
}

TEST_F(EvalOracle, LengthsDownToNothing) {
  for (const int64_t S : {0, 1, 7, 8, 9, 15, 16, 17})
    for (const int64_t B : {0, 2}) {
      RandomFile random;
      random.cfg = cfg_with({{"phi", "conv"}});
      random.B = B;
      random.S = S;
      for (const char* mode : {"batched", "sequential"}) compare(random, mode);
      random.kind = "decode";
      random.prefill = {S / 2};
      compare(random, "decode");
    }
}

TEST_F(EvalOracle, PackedDocuments) {
  const std::vector<std::vector<int64_t>> documents = {
      {0, 0, 1, 8, 40, 40, 70}, {0, 70}, {0, 3, 10, 17, 70}, {0}, {0, 0, 0}};
  for (const auto& offsets : documents)
    for (const char* phi : {"mean", "conv", "mlp"}) {
      RandomFile random;
      random.kind = "varlen";
      random.cfg = cfg_with({{"phi", phi}, {"gate", "sigmoid"}});
      random.B = 1;
      random.S = offsets.back();
      random.cu_seqlens = offsets;
      compare(random, "batched");
    }
}

/// Every operator alone on a packed and on a batched file, on the oracle's values of the stage
/// before.
TEST_F(EvalOracle, EachOperator) {
  for (const bool packed : {false, true}) {
    RandomFile random;
    random.cfg = cfg_with({{"phi", "mlp"}, {"rope", "block_start"}});
    random.kind = packed ? "varlen" : "forward";
    random.B = packed ? 1 : 2;
    random.S = 70;
    if (packed) random.cu_seqlens = {0, 0, 1, 8, 40, 40, 70};
    const TensorFile file = random.make();
    const auto expected = oracle_outputs(file, false);
    const auto one = [&](const char* op, const std::set<std::string>& stages,
                         const std::set<std::string>& outputs) {
      SCOPED_TRACE(op);
      EvalOptions options;
      options.op = op;
      std::map<std::string, FileTensor> wanted;
      for (const std::string& name : outputs) wanted[name] = expected.at(name);
      const TensorFile out = evaluate(on_expected(file, expected, stages), options).file;
      EXPECT_EQ(expect_agreement(out, wanted, {}), static_cast<int>(outputs.size()));
    };
    one("compress", {}, {"k_cmp", "v_cmp"});
    one("scores", {"q_rot", "k_cmp", "v_cmp"}, {"p_cmp", "scores", "o_cmp", "lse_cmp"});
    one("scores", {"p_cmp"}, {"scores"});
    one("scores", {}, {"q_rot", "k_cmp", "p_cmp", "scores", "o_cmp"});
    one("select", {"scores"}, {"block_idx"});
    one("select", {}, {"block_idx"});
    one("ranges", {"block_idx"}, {"ranges"});
    one("ranges", {"scores"}, {"ranges"});
    one("sel_attn", {"ranges"}, {"o_sel", "lse_sel"});
    one("sel_attn", {}, {"ranges", "o_sel", "lse_sel"});
    one("win_attn", {"q_rot"}, {"o_win", "lse_win"});
    one("layer", {"ranges"}, {"o", "o_sel", "o_win", "o_cmp"});
    one("layer", {"scores"}, {"o", "block_idx"});
  }
}

TEST_F(EvalOracle, BackendsAgree) {
  for (const char* backend :
       {"gather", "packed", "varlen", "masked", "v1", "v1_bulk", "v2", "plain", "masked,v1"}) {
    RandomFile random;
    random.S = 90;
    EvalOptions options;
    options.backend = backend;
    options.grad = true;
    const TensorFile file = random.make();
    SCOPED_TRACE(backend);
    EXPECT_GT(expect_agreement(evaluate(file, options).file, oracle_outputs(file, true), {}), 20);
  }
}

}  // namespace
}  // namespace suites::eval
