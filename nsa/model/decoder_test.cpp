// Decoder, loss and model configurations.
#include "nsa/model/decoder.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/testing/paths.h"
#include "nsa/model/blocks/embedding.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/model/blocks/swiglu.h"
#include "nsa/ops/linear/rounded_linear.h"
#include "nsa/program/input_error.h"

namespace nsa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kConfigs =
    std::filesystem::path(base::source_dir()) / "configs" / "models";

[[maybe_unused]] const bool kOneThread =
    (at::set_num_threads(1), true);  // these tensors are too small for two

ModelConfig shipped(const std::string& name) { return load_model_config(name, {kConfigs}); }

at::Tensor random_tokens(int64_t batch, int64_t length, int64_t vocab) {
  return at::randint(vocab, {batch, length}, at::kLong);
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(EmbedTokens, RowsAndTheSumsOfTheirGradients) {
  const at::Tensor weight = at::arange(6, at::kFloat).view({3, 2}).requires_grad_(true);
  const at::Tensor tokens = at::tensor({2, 0, 2, 2}, at::kLong).view({2, 2});
  const at::Tensor rows = embed_tokens(weight, tokens, at::kBFloat16);
  EXPECT_EQ(rows.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(
      at::equal(rows.to(at::kFloat).flatten(), at::tensor({4, 5, 0, 1, 4, 5, 4, 5}, at::kFloat)));
  rows.backward(
      at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kFloat).view({2, 2, 2}).to(at::kBFloat16));
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(weight.grad().flatten(), at::tensor({4, 8, 0, 0, 81, 162}, at::kFloat)));
}

TEST(NextTokenLoss, HandComputed) {
  // Two positions, vocabulary 2. Position 0: logits (0, ln 3), target 1 -> -ln(3/4). Position 1:
  // equal logits -> ln 2.
  const at::Tensor logits = at::tensor({0.0, std::log(3.0), 5.0, 5.0}, at::kDouble).view({1, 2, 2});
  const at::Tensor tokens = at::tensor({0, 1, 0}, at::kLong).view({1, 3});
  EXPECT_NEAR(next_token_loss(logits, tokens).item<double>(),
              (std::log(4.0 / 3.0) + std::log(2.0)) / 2, 1e-15);
}

TEST(NextTokenLoss, RewardsTheNextTokenAndNotTheInput) {
  const at::Tensor tokens = random_tokens(3, 65, 256);
  const at::Tensor perfect = at::one_hot(tokens.slice(1, 1), 256).to(at::kFloat) * 40;
  const at::Tensor copied = at::one_hot(tokens.slice(1, 0, -1), 256).to(at::kFloat) * 40;
  EXPECT_LT(next_token_loss(perfect, tokens).item<float>(), 1e-6);
  EXPECT_GT(next_token_loss(copied, tokens).item<float>(), 20);  // 0 if the shift were missing
}

TEST(NextTokenLoss, IsComputedInFp32) {
  const at::Tensor tokens = random_tokens(2, 9, 16);
  const at::Tensor logits = at::randn({2, 8, 16}).to(at::kBFloat16);
  const at::Tensor loss = next_token_loss(logits, tokens);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<float>(), next_token_loss(logits.to(at::kDouble), tokens).item<double>(),
              1e-5);
}

TEST(NextTokenLoss, NamesBadArguments) {
  const at::Tensor logits = at::zeros({2, 8, 16});
  EXPECT_THAT(error_of([&] { next_token_loss(logits, random_tokens(2, 8, 16)); }),
              HasSubstr("nsa::next_token_loss: tokens must be [2, 9], got [2, 8]"));
  EXPECT_THAT(error_of([&] { next_token_loss(logits, random_tokens(2, 9, 16).to(at::kInt)); }),
              HasSubstr("tokens must be int64, got Int"));
  EXPECT_THAT(error_of([&] { next_token_loss(logits[0], random_tokens(2, 9, 16)); }),
              HasSubstr("logits must be [B, S, V], got [8, 16]"));
}

TEST(DecoderParts, RmsNormAndSwigluAreTheirFormulas) {
  const at::Tensor x = at::randn({2, 3, 8}, at::kDouble), w = at::randn({8}, at::kDouble);
  const at::Tensor want = x / (x.square().mean(-1, true) + 1e-3).sqrt() * w;
  EXPECT_TRUE(at::allclose(rms_norm(x, w, 1e-3), want, 0, 1e-12));
  const at::Tensor up = at::randn({10, 8}, at::kDouble), down = at::randn({8, 5}, at::kDouble);
  const at::Tensor g = x.matmul(up.slice(0, 0, 5).t()), u = x.matmul(up.slice(0, 5).t());
  EXPECT_TRUE(at::allclose(swiglu(rounded_linear(x, {up}), down),
                           (g * g.sigmoid() * u).matmul(down.t()), 0, 1e-12));
  EXPECT_THAT(error_of([&] { silu_product(at::randn({2, 7})); }),
              HasSubstr("nsa::silu_product: last size of gate_up must be even, got shape [2, 7]"));
}

TEST(Decoder, ParametersOfM7cAreInTheTargetRange) {
  ModelConfig config = shipped("m7c_125m");
  EXPECT_EQ(config.num_layers, 12);
  config.num_layers = 1;
  const int64_t one = Decoder(config)->num_parameters();
  config.num_layers = 2;
  const int64_t two = Decoder(config)->num_parameters();
  const int64_t all = one + 11 * (two - one);
  EXPECT_GE(all, 73'000'000);
  EXPECT_LE(all, 78'000'000);
}

TEST(Decoder, ShippedConfigurationsAgreeWithTheLibrary) {
  const auto same = [](const NsaConfig& a, const NsaConfig& b) {
    return a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads &&
           a.qk_head_dim == b.qk_head_dim && a.v_head_dim == b.v_head_dim &&
           a.block_size == b.block_size && a.block_stride == b.block_stride &&
           a.sel_block_size == b.sel_block_size && a.top_n == b.top_n &&
           a.num_initial == b.num_initial && a.num_local == b.num_local && a.window == b.window &&
           a.phi == b.phi && a.gate == b.gate && a.rope == b.rope && a.rope_base == b.rope_base &&
           a.rope_pairs == b.rope_pairs && a.scale_cmp == b.scale_cmp &&
           a.scale_sel == b.scale_sel && a.scale_win == b.scale_win;
  };
  EXPECT_TRUE(same(shipped("m7c_125m").attention, m7c_125m()));
  EXPECT_TRUE(same(shipped("tiny_cpu").attention, tiny_cpu()));
}

TEST(Decoder, FirstLossIsThatOfAGuess) {
  at::manual_seed(1);
  Decoder model(shipped("tiny_cpu"));
  const at::Tensor tokens = random_tokens(4, 129, 256);
  const auto out = model->forward(tokens.slice(1, 0, -1));
  EXPECT_EQ(out.logits.sizes(), (std::vector<int64_t>{4, 128, 256}));
  EXPECT_EQ(out.gates.size(), 2u);
  EXPECT_NEAR(next_token_loss(out.logits, tokens).item<double>(), std::log(256.0), 0.1);
}

TEST(Decoder, FutureTokensChangeNothing) {
  at::manual_seed(2);
  Decoder model(shipped("tiny_cpu"));
  at::Tensor tokens = random_tokens(2, 100, 256);
  const at::Tensor before = model->forward(tokens).logits;
  tokens.slice(1, 61).copy_(random_tokens(2, 39, 256));
  const at::Tensor after = model->forward(tokens).logits;
  EXPECT_TRUE(at::equal(before.slice(1, 0, 61), after.slice(1, 0, 61)));
  EXPECT_FALSE(at::equal(before.slice(1, 61), after.slice(1, 61)));
}

TEST(Decoder, EveryParameterLearnsInItsOwnType) {
  at::manual_seed(3);
  Decoder model(shipped("tiny_cpu"));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    model->compute_type = type;
    model->zero_grad();
    const at::Tensor tokens = random_tokens(2, 97, 256);
    const auto out = model->forward(tokens.slice(1, 0, -1));
    EXPECT_EQ(out.logits.scalar_type(), type);
    next_token_loss(out.logits, tokens).backward();
    for (const auto& item : model->named_parameters()) {
      const at::Tensor gradient = item.value().grad();
      ASSERT_TRUE(gradient.defined()) << item.key();
      EXPECT_EQ(gradient.scalar_type(), at::kFloat) << item.key();
      EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << item.key();
      EXPECT_GT(gradient.abs().max().item<float>(), 0) << item.key();
    }
  }
}

/// The dense layer is what NSA gives with a window over the whole row and the gate of the window
/// alone open.
void expect_window_branch_alone(RopePairs pairs) {
  ModelConfig config = shipped("tiny_cpu");
  config.num_layers = 1;
  config.attention.rope_pairs = pairs;
  at::manual_seed(5);
  DecoderLayer layer(config);
  config.attention_kind = AttentionKind::kDense;
  at::manual_seed(5);
  DecoderLayer dense(config);
  layer->to(at::kDouble), dense->to(at::kDouble);
  const at::Tensor x = at::randn({2, 75, config.dim}, at::kDouble).requires_grad_(true);
  const auto window_alone = [](size_t, NsaAttentionImpl& attention, const at::Tensor& normed) {
    NsaConfig wide = attention.config();
    wide.window = normed.size(1);
    NsaAttentionImpl::Detailed out;
    out.attention = nsa_attention(attention.project(normed), wide, attention.options);
    out.y = attention.project_out(out.attention.o_win);
    return out;
  };
  const auto want = layer->forward({x, {}}, 0, {}, window_alone),
             have = dense->forward({x, {}}, 0, {});
  EXPECT_TRUE(at::allclose(have.stream.sum(), want.stream.sum(), 0, 1e-12));
  EXPECT_FALSE(have.gates.defined());
  ASSERT_EQ(have.record->rows().size(), 1u);
  EXPECT_EQ(have.record->rows()[0].stage, "dense_attn");
  EXPECT_EQ(have.record->rows()[0].backend, "sdpa");
  want.stream.sum().square().sum().backward();
  const at::Tensor d_x = x.grad().clone();
  x.mutable_grad().zero_();
  have.stream.sum().square().sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), d_x, 1e-10, 1e-10));
  const auto theirs = layer->named_parameters();
  for (const auto& item : dense->named_parameters())
    EXPECT_TRUE(at::allclose(item.value().grad(), theirs[item.key()].grad(), 1e-10, 1e-10))
        << item.key();
}

TEST(DenseCounterpart, IsTheWindowBranchAlone) {
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalfSplit}) {
    SCOPED_TRACE(to_string(pairs));
    expect_window_branch_alone(pairs);
  }
}

TEST(DenseCounterpart, SharesSizesAndFirstWeights) {
  for (const std::string name : {"m7c_125m", "tiny_cpu"}) {
    ModelConfig nsa = shipped(name), dense = shipped(name + "_dense");
    EXPECT_EQ(dense.attention_kind, AttentionKind::kDense);
    dense.name = nsa.name, dense.attention_kind = nsa.attention_kind;
    EXPECT_EQ(describe(dense), describe(nsa));
  }
  at::manual_seed(6);
  Decoder nsa(shipped("tiny_cpu"));
  at::manual_seed(6);
  Decoder dense(shipped("tiny_cpu_dense"));
  EXPECT_LT(dense->num_parameters(), nsa->num_parameters());
  const auto theirs = nsa->named_parameters();
  for (const auto& item : dense->named_parameters())
    EXPECT_TRUE(at::equal(item.value(), theirs[item.key()])) << item.key();
}

TEST(DenseCounterpart, SharesFirstWeightsWithASharedKeyAndValue) {
  ModelConfig config = shipped("tiny_cpu");
  config.projections = {.shared_kv = true, .gate = GateProjection::kLinear};
  config.tied_head = true;
  at::manual_seed(7);
  Decoder nsa(config);
  config.attention_kind = AttentionKind::kDense;
  at::manual_seed(7);
  Decoder dense(config);
  const auto theirs = nsa->named_parameters();
  EXPECT_TRUE(theirs.contains("layer1.attention.w_g"));
  EXPECT_FALSE(theirs.contains("head"));
  EXPECT_EQ(dense->named_parameters().size() + 2, theirs.size());
  for (const auto& item : dense->named_parameters())
    EXPECT_TRUE(at::equal(item.value(), theirs[item.key()])) << item.key();
}

TEST(Decoder, RejectsOtherTokens) {
  Decoder model(shipped("tiny_cpu"));
  EXPECT_THAT(error_of([&] { model->forward(at::zeros({2, 3})); }),
              HasSubstr("nsa::Decoder: tokens must be int64 [B, S], got Float [2, 3]"));
}

const std::string kSmallModel =
    R"({"name": "m", "vocab": 256, "dim": 8, "num_layers": 1, "mlp_hidden": 8, "seq_len": 16,
 "attention": {"num_heads": 2, "num_kv_heads": 1, "qk_head_dim": 4, "v_head_dim": 4, "block_size": 8,
  "block_stride": 4, "sel_block_size": 16, "top_n": 4, "window": 8}})";

/// The model with `more` among the keys of its attention.
ModelConfig with_attention(const std::string& more) {
  std::string text = kSmallModel;
  const std::string last = "\"window\": 8";
  return parse_model_config(text.insert(text.find(last) + last.size(), more), "m.json");
}

TEST(ModelConfig, PairsOfTheRotationAreOptional) {
  EXPECT_THAT(describe(with_attention("")), Not(HasSubstr("interleaved")));
  const ModelConfig halves = with_attention(", \"rope_pairs\": \"half_split\"");
  EXPECT_EQ(halves.attention.rope_pairs, RopePairs::kHalfSplit);
  EXPECT_THAT(describe(halves), HasSubstr("rope before_pool 10000 half_split"));
  EXPECT_THAT(error_of([] { with_attention(", \"rope_pairs\": \"neox\""); }),
              HasSubstr("rope_pairs must be one of interleaved, half_split, got 'neox'"));
}

TEST(ModelConfig, ProjectionsAndATiedHeadAreOptional) {
  const ModelConfig plain = with_attention("");
  EXPECT_FALSE(plain.projections.shared_kv || plain.tied_head);
  EXPECT_TRUE(plain.projections.has_gate_mlp());
  EXPECT_THAT(describe(plain), AllOf(Not(HasSubstr("shared")), Not(HasSubstr("gate projection")),
                                     Not(HasSubstr("tied"))));
  ModelConfig other = with_attention(", \"shared_kv\": true, \"gate_projection\": \"linear\"");
  EXPECT_THAT(describe(other), HasSubstr(", shared K and V, gate projection linear"));
  other.tied_head = true;
  EXPECT_THAT(describe(other), HasSubstr(", tied head"));
  EXPECT_THAT(error_of([] { with_attention(", \"gate_projection\": \"line\""); }),
              HasSubstr("gate_projection must be one of mlp, linear, got 'line'"));
  EXPECT_THAT(error_of([] { with_attention(", \"shared_kv\": 1"); }),
              HasSubstr("\"shared_kv\" must be true or false, got 1"));
}

TEST(ModelConfig, ScalesOfTheBranchesAreOptional) {
  const ModelConfig plain = with_attention("");
  EXPECT_FALSE(plain.attention.scale_cmp || plain.attention.scale_sel || plain.attention.scale_win);
  EXPECT_THAT(describe(plain), Not(HasSubstr("scales")));
  ModelConfig scaled = with_attention(", \"scale_cmp\": 2, \"scale_win\": 0.25");
  EXPECT_EQ(scaled.attention.scale_cmp, 2.0);
  EXPECT_FALSE(scaled.attention.scale_sel);
  EXPECT_EQ(scaled.attention.scale_win, 0.25);
  EXPECT_THAT(describe(scaled), HasSubstr(", scales 2/0.5/0.25"));
  EXPECT_THAT(error_of([] { with_attention(", \"scale_sel\": 0"); }),
              HasSubstr("scale_sel must be a positive finite number, got 0"));
  scaled.attention_kind = AttentionKind::kDense;
  EXPECT_THAT(error_of([&] { scaled.validate(); }),
              HasSubstr("scale_win must be absent where attention_kind is dense"));
}

TEST(ModelConfig, ErrorsNameFileLineAndNearestName) {
  const std::string& good = kSmallModel;
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    return error_of([&] { parse_model_config(text, "m.json"); });
  };
  EXPECT_EQ(error("", ""), "");
  EXPECT_THAT(error("\"seq_len\"", "\"seqlen\""),
              HasSubstr("m.json:1:1: key \"seq_len\" is missing"));
  EXPECT_THAT(error("\"window\": 8", "\"window\": 8, \"num_lokal\": 2"),
              HasSubstr("m.json:3:82: unknown key \"num_lokal\"; did you mean \"num_local\"?"));
  EXPECT_THAT(error("\"dim\": 8", "\"dim\": \"8\""),
              HasSubstr("m.json:1:36: \"dim\" must be an integer, got \"8\""));
  EXPECT_THAT(error("\"dim\": 8", "\"dim\": 0"), HasSubstr("model m: dim must be >= 1, got 0"));
  EXPECT_THAT(error("\"num_kv_heads\": 1", "\"num_kv_heads\": 3"), HasSubstr("num_kv_heads"));
  EXPECT_THAT(error("\"window\": 8", "\"window\": 8, \"phi\": \"men\""), HasSubstr("men"));
  EXPECT_THAT(error("\"dim\": 8", "\"dim\": 8, \"dim\": 9"), HasSubstr("\"dim\" is given twice"));
  EXPECT_THAT(error_of([] { shipped("tiny_cpo"); }),
              HasSubstr("unknown model \"tiny_cpo\"; known: m7c_125m, m7c_125m_checkpointed, "
                        "m7c_125m_dense, m7c_125m_sigmoid, nsa_1b, paper_attention, recall_cpu, "
                        "recall_gpu, recall_gpu_8_blocks, retrieval_gpu, tiny_cpu, "
                        "tiny_cpu_dense; did you mean \"tiny_cpu\"?"));
  EXPECT_THAT(error_of([] { shipped("/no/such.json"); }),
              HasSubstr("cannot read model configuration /no/such.json"));
}

/// The names of all parameters, in the order in which a backward pass makes their gradients, and
/// "attention" where it goes on to the attention of a layer.
std::vector<std::string> order_of_gradients(Decoder& model) {
  std::vector<std::string> order;
  for (const auto& parameter : model->named_parameters())
    parameter.value().register_hook(
        [&order, name = parameter.key()](const at::Tensor&) { order.push_back(name); });
  model->call_before_attention_backward([&order] { order.emplace_back("attention"); });
  model->forward(random_tokens(1, 40, 256)).logits.sum().backward();
  model->call_before_attention_backward({});
  return order;
}

TEST(Decoder, GradientOrderIsTheOrderOfGradients) {
  Decoder model(shipped("tiny_cpu"));
  std::vector<std::string> listed;
  const auto names = model->named_parameters();
  for (const at::Tensor& parameter : model->gradient_order())
    for (const auto& named : names)
      if (named.value().is_same(parameter)) listed.push_back(named.key());
  const std::vector<std::string> made = order_of_gradients(model);
  // Within one layer's attention the order is autograd's; everything else comes as listed.
  const auto stage = [](const std::string& name) {
    const size_t at = name.find(".attention.");
    return at == std::string::npos ? name : name.substr(0, at) + ".attention";
  };
  std::vector<std::string> stages_listed, stages_made;
  for (const std::string& name : listed)
    if (name.find("norm") == std::string::npos) stages_listed.push_back(stage(name));
  for (const std::string& name : made)
    if (name.find("norm") == std::string::npos && name != "attention")
      stages_made.push_back(stage(name));
  EXPECT_EQ(stages_made, stages_listed);
  EXPECT_EQ(listed.size(), names.size());
}

TEST(Decoder, TheCallComesBeforeAttentionAndBehindTheGradientsOfTheMlp) {
  Decoder model(shipped("tiny_cpu"));
  const std::vector<std::string> made = order_of_gradients(model);
  const auto place = [&](const std::string& name) {
    return std::ranges::find(made, name) - made.begin();
  };
  EXPECT_EQ(std::ranges::count(made, "attention"), model->config().num_layers);
  EXPECT_LT(place("layer1.w_gate_up"), place("attention"));
  EXPECT_LT(place("attention"), place("layer1.attention.w_q"));
  EXPECT_LT(place("attention"), place("layer1.attention.w_o"));
}

}  // namespace
}  // namespace nsa
