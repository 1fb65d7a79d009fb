// The optimizer against hand-computed values, and the loop's properties on models small enough to
// train in a second.
#include "nsa/train/loop/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/testing/paths.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/model/document_packing.h"
#include "nsa/train/loop/gate_stats.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/record/judge.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

/// "abcabc..." from a row-dependent start: learnable in a few steps.
class Repetition : public TokenSource {
 public:
  void read_row(int64_t row, std::span<uint8_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<uint8_t>((static_cast<size_t>(row) + i) % 3);
  }
  bool is_real() const override { return false; }
  std::string describe() const override { return "abc"; }
};

/// Rows of any function of row and place.
class Rows : public TokenSource {
 public:
  using Token = std::function<int64_t(int64_t row, int64_t place)>;
  explicit Rows(Token token) : token_(std::move(token)) {}
  void read_row(int64_t row, std::span<uint8_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<uint8_t>(token_(row, static_cast<int64_t>(i)));
  }
  bool is_real() const override { return false; }
  std::string describe() const override { return "rows of a test"; }

 private:
  Token token_;
};

/// A token of text, never the end of a document.
int64_t letter(int64_t row, int64_t place) { return 1 + (row * 7 + place * place * 3) % 15; }

ModelConfig small_config(int64_t vocab) {
  ModelConfig config;
  config.name = "small";
  config.vocab = vocab, config.dim = 32, config.num_layers = 2, config.mlp_hidden = 48,
  config.seq_len = 32;
  config.attention = tiny_cpu();
  config.attention.num_heads = 2, config.attention.num_kv_heads = 1;
  config.attention.window = 16;
  return config;
}

TrainOptions small_options(int64_t steps) {
  TrainOptions options;
  options.steps = steps, options.batch = 4, options.lr = 1e-2, options.warmup = 5;
  return options;
}

struct Rig {
  Decoder model{nullptr};
  std::unique_ptr<Trainer> trainer;
};

Rig make_rig(const TrainOptions& options, const TokenSource& tokens, int64_t vocab,
             LossFunction loss = next_token_loss, at::ScalarType type = at::kFloat,
             std::function<double(int64_t)> learning_rate = {}) {
  at::set_num_threads(1);  // a second one only waits for the first with tensors this small
  at::manual_seed(options.seed);
  Decoder model(small_config(vocab));
  model->to(type);
  model->compute_type = type;
  const Schedule schedule{options.lr, options.min_lr, options.warmup, options.steps};
  TrainerParts parts;
  parts.model = model;
  parts.tokens = &tokens;
  parts.loss = std::move(loss);
  parts.learning_rate = [schedule](int64_t k) { return schedule.at(k); };
  if (learning_rate) parts.learning_rate = std::move(learning_rate);
  return {model, std::make_unique<Trainer>(std::move(parts), options, 32, at::kCPU)};
}

std::vector<StepRecord> run_all(Trainer& trainer, int64_t steps) {
  std::vector<StepRecord> trace;
  for (int64_t i = 0; i < steps; ++i) trace.push_back(trainer.step(false));
  return trace;
}

std::vector<std::string> finding_codes(const TrainOptions& options, int64_t vocab,
                                       const std::vector<StepRecord>& trace) {
  RunFacts facts;
  facts.vocab = vocab;
  std::vector<std::string> codes;
  for (const Finding& f : judge(options, facts, trace).findings) codes.push_back(f.code);
  return codes;
}

/// A loss whose label shift is missing.
at::Tensor target_is_input(const at::Tensor& logits, const at::Tensor& tokens) {
  return at::cross_entropy_loss(logits.flatten(0, 1), tokens.slice(1, 0, -1).reshape({-1}));
}

at::Tensor parameter_with_gradient(const std::vector<double>& values,
                                   const std::vector<double>& gradient, at::IntArrayRef shape) {
  at::Tensor p = at::tensor(values, at::kDouble).view(shape).clone().requires_grad_(true);
  p.mutable_grad() = at::tensor(gradient, at::kDouble).view(shape).clone();
  return p;
}

TEST(AdamW, OneStepByHand) {
  // g = 0.6: m = 0.06, v = 0.018; corrected by 1-0.9 and 1-0.95 they are 0.6 and 0.36, so the step
  // is lr * 0.6/(0.6+eps). The matrix also loses lr * wd * p; the vector does not.
  const at::Tensor matrix = parameter_with_gradient({2.0}, {0.6}, {1, 1});
  const at::Tensor vector = parameter_with_gradient({2.0}, {-0.6}, {1});
  AdamW optimizer({matrix, vector}, {.weight_decay = 0.5, .clip_norm = 0});
  const at::Tensor norm = optimizer.step(0.1);
  EXPECT_NEAR(matrix.item<double>(), 2.0 - 0.1 * 0.5 * 2.0 - 0.1, 1e-7);
  EXPECT_NEAR(vector.item<double>(), 2.0 + 0.1, 1e-7);
  EXPECT_NEAR(norm.item<double>(), 0.6 * std::sqrt(2.0), 1e-12);
  EXPECT_FALSE(matrix.grad().defined());
  EXPECT_EQ(optimizer.applied_learning_rate(), 0.1);
}

TEST(AdamW, SecondStepByHandWithClipping) {
  // Gradient norms 5 and 10 are clipped to 1, so g = 0.6, then g = -0.6 in the first place.
  const at::Tensor p = parameter_with_gradient({1.0, 0.0}, {3.0, 4.0}, {2});
  AdamW optimizer({p}, {.weight_decay = 0, .clip_norm = 1.0});
  EXPECT_NEAR(optimizer.step(0.1).item<double>(), 5.0, 1e-12);
  EXPECT_NEAR(p[0].item<double>(), 0.9, 1e-6);
  p.mutable_grad() = at::tensor({-6.0, 8.0}, at::kDouble);
  EXPECT_NEAR(optimizer.step(0.1).item<double>(), 10.0, 1e-12);
  // m = 0.9*0.06 - 0.06 = -0.006, corrected by 1-0.81: -0.0315789; v = 0.0351 / (1-0.9025) = 0.36.
  EXPECT_NEAR(p[0].item<double>(), 0.9 + 0.1 * (0.006 / 0.19) / 0.6, 1e-6);
}

TEST(AdamW, NonFiniteGradientsChangeNothing) {
  const at::Tensor p = parameter_with_gradient({1.0, 2.0}, {0.1, std::nan("")}, {2});
  AdamW optimizer({p}, {});
  EXPECT_TRUE(std::isnan(optimizer.step(0.1).item<double>()));
  EXPECT_TRUE(at::equal(p, at::tensor({1.0, 2.0}, at::kDouble)));
  p.mutable_grad() = at::tensor({0.6, 0.0}, at::kDouble);
  optimizer.step(0.1);  // counts as the first step, moments are untouched
  EXPECT_NEAR(p[0].item<double>(), 0.9, 1e-6);
}

TEST(AdamW, AnIdleUpdateChangesNothing) {
  const at::Tensor p = parameter_with_gradient({1.0, 2.0}, {0.5, 0.25}, {1, 2});
  const at::Tensor q = p.detach().clone().requires_grad_(true);
  AdamW optimizer({p}, {}), other({q}, {});
  const auto update = [](AdamW& o, const at::Tensor& weight, double gradient, bool idle) {
    weight.mutable_grad() = at::full({1, 2}, gradient, at::kDouble);
    o.set_learning_rate(0.1);
    return o.update(at::full({}, idle, at::kBool)).item<double>();
  };
  update(optimizer, p, 0.5, false);
  update(other, q, 0.5, false);
  EXPECT_EQ(update(optimizer, p, 0, true), 0);
  EXPECT_TRUE(at::equal(p, q)) << "no decay of weights";
  update(optimizer, p, 0.25, false);
  update(other, q, 0.25, false);
  EXPECT_TRUE(at::equal(p, q)) << "no decay of moments";
  EXPECT_EQ(optimizer.update_count().item<float>(), 2);
}

TEST(AdamW, NamesAParameterWithoutGradient) {
  const at::Tensor p = at::ones({2}).requires_grad_(true);
  AdamW optimizer({p}, {});
  try {
    optimizer.step(0.1);
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("nsa::AdamW: parameter 0 of shape [2] must have a gradient, got none"));
  }
}

TEST(GateStats, ByHand) {
  // One layer, two tokens: gates (1, 0, 0) and (0.5, 0.5, 0). Entropies 0 and ln 2.
  const at::Tensor gates =
      at::tensor({1.0, 0.0, 0.0, 0.5, 0.5, 0.0}, at::kDouble).view({1, 2, 1, 3});
  const at::Tensor flat = at::full({1, 2, 1, 3}, 1.0 / 3, at::kDouble);
  const at::Tensor values = reduce_gates({gates, flat});
  const GateStats stats = gate_stats(values.data_ptr<double>());
  EXPECT_NEAR(stats.cmp, (0.75 + 1.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(stats.sel, (0.25 + 1.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(stats.layer_entropy_min, std::log(2.0) / 2, 1e-12);
  EXPECT_NEAR(stats.layer_entropy_max, std::log(3.0), 1e-12);
  EXPECT_NEAR(stats.entropy, (std::log(2.0) / 2 + std::log(3.0)) / 2, 1e-12);
  EXPECT_NEAR(stats.layer_spread_min, 0, 1e-12);
}

TEST(Trainer, OverfitsARepetition) {
  const Repetition abc;
  const TrainOptions options = small_options(40);
  const Rig s = make_rig(options, abc, 256);
  const auto trace = run_all(*s.trainer, options.steps);
  EXPECT_NEAR(trace.front().loss, std::log(256.0), 0.2);
  EXPECT_LT(trace.back().loss, 0.1);
  EXPECT_THAT(finding_codes(options, 256, trace), ::testing::IsEmpty());
  EXPECT_EQ(trace.back().rows, 160);
  EXPECT_GT(trace.back().step_ms, 0);
  EXPECT_GT(trace.back().tok_s, 0);
}

TEST(Trainer, RandomTokensStayAtLnV) {
  const auto random = make_synthetic_source(16, 1);
  TrainOptions options = small_options(60);
  options.data = "synthetic";
  const Rig s = make_rig(options, *random, 16);
  EXPECT_THAT(finding_codes(options, 16, run_all(*s.trainer, options.steps)), ::testing::IsEmpty());
}

TEST(Trainer, MissingLabelShiftIsFoundOnRandomTokens) {
  const auto random = make_synthetic_source(16, 1);
  TrainOptions options = small_options(60);
  options.data = "synthetic";
  const Rig s = make_rig(options, *random, 16, target_is_input);
  EXPECT_THAT(finding_codes(options, 16, run_all(*s.trainer, options.steps)),
              ::testing::ElementsAre("LOSS_TOO_GOOD"));
}

/// The run that a smoke test makes: 40 steps of tiny_cpu are enough for a leak to show at
/// vocabulary 256.
TEST(Trainer, FortyStepsOfTheSmokeModelShowALeak) {
  at::set_num_threads(1);
  const auto random = make_synthetic_source(256, 1);
  TrainOptions options;
  options.data = "synthetic", options.steps = 40, options.warmup = 5;
  at::manual_seed(1);
  const ModelConfig config = load_model_config(
      "tiny_cpu", {std::filesystem::path(base::source_dir()) / "configs" / "models"});
  const Schedule schedule{options.lr, options.min_lr, options.warmup, options.steps};
  Trainer trainer({Decoder(config), random.get(), target_is_input,
                   [schedule](int64_t k) { return schedule.at(k); }},
                  options, config.seq_len, at::kCPU);
  const auto trace = run_all(trainer, options.steps);
  EXPECT_THAT(finding_codes(options, 256, trace), ::testing::ElementsAre("LOSS_TOO_GOOD"))
      << "last loss " << trace.back().loss;
}

TEST(Trainer, AccumulationEqualsALargerBatch) {
  const auto random = make_synthetic_source(16, 3);
  TrainOptions whole = small_options(4), halves = small_options(4);
  halves.batch = 2, halves.accum = 2;
  const Rig a = make_rig(whole, *random, 16, next_token_loss, at::kDouble);
  const Rig b = make_rig(halves, *random, 16, next_token_loss, at::kDouble);
  const auto trace_a = run_all(*a.trainer, 4), trace_b = run_all(*b.trainer, 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(trace_a[i].loss, trace_b[i].loss, 1e-10);
    EXPECT_NEAR(trace_a[i].grad_norm, trace_b[i].grad_norm, 1e-9);
    EXPECT_EQ(trace_a[i].lr, trace_b[i].lr);
    EXPECT_EQ(trace_a[i].rows, trace_b[i].rows);
  }
  const auto parameters_a = a.model->parameters(), parameters_b = b.model->parameters();
  for (size_t i = 0; i < parameters_a.size(); ++i)
    EXPECT_TRUE(at::allclose(parameters_a[i], parameters_b[i], 0, 1e-7));
}

/// Documents of a row of 33 tokens by its number: none ends, every second token ends one, nothing
/// but ends (no target), one target.
int64_t unlike_documents(int64_t row, int64_t place) {
  const bool end = row % 4 == 0   ? false
                   : row % 4 == 1 ? place % 2 == 1
                                  : row % 4 == 2 || place != 9;
  return end ? kDocumentEnd : letter(row, place);
}

TrainOptions packed_options(int64_t batch, int64_t accum) {
  TrainOptions options = small_options(4);
  options.packing = true, options.batch = batch, options.accum = accum;
  return options;
}

/// The mean over the targets of rows 0 .. 3, one row after the other.
double mean_over_targets(Decoder& model, const TokenSource& source) {
  const at::NoGradGuard no_grad;
  double sum = 0, targets = 0;
  for (int64_t row = 0; row < 4; ++row) {
    std::vector<uint8_t> bytes(33);
    source.read_row(row, bytes);
    const at::Tensor tokens = at::from_blob(bytes.data(), {1, 33}, at::kByte).to(at::kLong);
    const at::Tensor in = tokens.slice(1, 0, -1);
    const auto out = model->forward(in, {}, within_documents(document_starts(bytes, 33)));
    const at::Tensor losses =
        -at::log_softmax(out.logits, -1).gather(-1, tokens.slice(1, 1).unsqueeze(-1)).squeeze(-1);
    sum += losses.masked_fill(in.eq(kDocumentEnd), 0).sum().item<double>();
    targets += in.ne(kDocumentEnd).sum().item<double>();
  }
  return sum / targets;
}

TEST(Trainer, APackedStepIsTheMeanOverItsTargetsInAnyMicroBatches) {
  const Rows source(unlike_documents);
  Rig whole = make_rig(packed_options(4, 1), source, 16, packed_next_token_loss, at::kDouble);
  const double by_hand = mean_over_targets(whole.model, source);
  const auto want = run_all(*whole.trainer, 4);
  EXPECT_NEAR(want[0].loss, by_hand, 1e-12);
  EXPECT_EQ(want[0].targets, 32 + 16 + 0 + 1);
  for (const auto& [batch, accum] : {std::pair{2, 2}, {1, 4}}) {
    const Rig rig =
        make_rig(packed_options(batch, accum), source, 16, packed_next_token_loss, at::kDouble);
    const auto have = run_all(*rig.trainer, 4);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(have[i].loss, want[i].loss, 1e-10) << batch << " x " << accum;
      EXPECT_NEAR(have[i].grad_norm, want[i].grad_norm, 1e-9) << batch << " x " << accum;
      EXPECT_EQ(have[i].targets, want[i].targets);
    }
    const auto a = whole.model->parameters(), b = rig.model->parameters();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 0, 1e-7));
  }
}

void expect_same_training(const Rig& a, const Rig& b) {
  const auto left = a.model->parameters(), right = b.model->parameters();
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(at::equal(left[i], right[i])) << i;
    const auto &m = a.trainer->optimizer().moments(i), &n = b.trainer->optimizer().moments(i);
    EXPECT_TRUE(at::equal(m.first, n.first) && at::equal(m.second, n.second)) << i;
  }
  EXPECT_TRUE(
      at::equal(a.trainer->optimizer().update_count(), b.trainer->optimizer().update_count()));
}

/// A run in which one step has no target ends as the run without that step does.
TEST(Trainer, AStepWithoutTargetsIsSkipped) {
  const auto constant = [](int64_t) { return 1e-2; };
  for (const auto& [batch, accum] : {std::pair{2, 1}, {1, 2}, {1, 1}})
    for (const int64_t idle : {0, 1, 2}) {
      const int64_t first = idle * batch * accum, behind = first + batch * accum;
      const Rows text(letter);
      const Rows broken([=](int64_t row, int64_t place) {
        if (row < first) return letter(row, place);
        return row < behind ? kDocumentEnd : letter(row - batch * accum, place);
      });
      const TrainOptions options = packed_options(batch, accum);
      const Rig a = make_rig(options, text, 16, packed_next_token_loss, at::kFloat, constant);
      const Rig b = make_rig(options, broken, 16, packed_next_token_loss, at::kFloat, constant);
      run_all(*a.trainer, 3);
      const StepRecord skipped = run_all(*b.trainer, 4)[static_cast<size_t>(idle)];
      SCOPED_TRACE(std::to_string(batch) + " x " + std::to_string(accum) + ", step " +
                   std::to_string(idle));
      EXPECT_EQ(skipped.targets, 0);
      EXPECT_TRUE(std::isnan(skipped.loss));
      EXPECT_EQ(skipped.grad_norm, 0);
      EXPECT_TRUE(skipped.is_finite());
      expect_same_training(a, b);
    }
}

/// Rows never trained on: the mean over micro-batches of one forward pass each, and nothing that
/// training sees changes by it.
TEST(Trainer, TheLossOfOtherRowsIsMeasuredWithoutTraining) {
  const Rows kept_out([](int64_t row, int64_t place) { return letter(row + 1000, place); });
  const Rows tokens(letter);
  TrainOptions options = small_options(4);
  options.batch = 2;
  Rig with = make_rig(options, tokens, 16), without = make_rig(options, tokens, 16);
  for (int step = 0; step < 3; ++step) {
    with.trainer->step(true);
    without.trainer->step(true);
    const double loss = with.trainer->evaluate(kept_out, 3).loss_nat;
    double sum = 0;
    const at::NoGradGuard no_grad;
    for (int64_t batch = 0; batch < 3; ++batch) {
      at::Tensor rows = at::empty({2, 33}, at::kLong);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t i = 0; i < 33; ++i) rows[b][i] = letter(batch * 2 + b + 1000, i);
      sum += next_token_loss(with.model->forward(rows.slice(1, 0, -1)).logits, rows).item<double>();
    }
    EXPECT_NEAR(loss, sum / 3, 1e-6);
  }
  EXPECT_EQ(with.trainer->step(true).loss, without.trainer->step(true).loss);
  const auto random = make_synthetic_source(16, 5);
  EXPECT_GT(with.trainer->evaluate(*random, 3).loss_nat, 2.5)
      << "nothing can be known of random tokens";
}

TEST(Trainer, GatesOfEqualTokensAreMarked) {
  TrainOptions options = small_options(1);
  options.batch = 2;
  const auto spread = [&](const Rows& rows) {
    return make_rig(options, rows, 16).trainer->step(false).gate.layer_spread_min;
  };
  EXPECT_TRUE(std::isinf(spread(Rows([](int64_t, int64_t) { return 5; }))));
  // The last token of a row is no input.
  EXPECT_TRUE(std::isinf(spread(Rows([](int64_t, int64_t place) { return place == 32 ? 6 : 5; }))));
  EXPECT_GT(spread(Rows([](int64_t row, int64_t) { return row; })), 0);
  EXPECT_FALSE(std::isinf(spread(Rows([](int64_t row, int64_t) { return row; }))));
}

TEST(Trainer, SameSeedSameBits) {
  const auto random = make_synthetic_source(16, 3);
  const TrainOptions options = small_options(3);
  const Rig a = make_rig(options, *random, 16), b = make_rig(options, *random, 16);
  const auto trace_a = run_all(*a.trainer, 3), trace_b = run_all(*b.trainer, 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(trace_a[i].loss, trace_b[i].loss);
    EXPECT_EQ(trace_a[i].grad_norm, trace_b[i].grad_norm);
  }
}

TEST(Trainer, EveryStageIsReportedInOrder) {
  const auto random = make_synthetic_source(16, 3);
  TrainOptions options = small_options(1);
  options.batch = 1, options.accum = 2;
  const Rig s = make_rig(options, *random, 16);
  std::string order;
  const StepRecord r = s.trainer->step(true, [&](Stage stage) { order += stage_name(stage)[0]; });
  EXPECT_EQ(order, "lfblfbo");
  EXPECT_NEAR(r.load_ms + r.forward_ms + r.backward_ms + r.optimizer_ms, r.step_ms,
              0.2 * r.step_ms);
}

TEST(NonFinite, FirstBadTensorIsNamed) {
  const auto random = make_synthetic_source(16, 3);
  const TrainOptions options = small_options(5);
  const auto run = [&](const std::function<void(Decoder&)>& damage,
                       LossFunction loss = next_token_loss) {
    Rig s = make_rig(options, *random, 16, std::move(loss));
    s.trainer->step(false);
    const at::NoGradGuard no_grad;
    damage(s.model);
    StepRecord record;
    {
      const at::AutoGradMode grad(true);
      record = s.trainer->step(false);
      EXPECT_FALSE(std::isfinite(record.loss) && std::isfinite(record.grad_norm));
      return s.trainer->locate_non_finite();
    }
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(run([&](Decoder& m) {
                m->named_parameters()["layer1.attention.w_o"].view({-1})[5].fill_(nan);
              }),
              HasSubstr("parameter layer1.attention.w_o: 1 of 1024 values are not finite (1 NaN), "
                        "first at flat index 5"));
  EXPECT_THAT(run([&](Decoder& m) { m->named_parameters()["layer1.w_down"].fill_(3e38); }),
              HasSubstr("layer1: MLP: "));
  EXPECT_THAT(
      run([&](Decoder& m) { m->named_parameters()["layer0.attention.w_v_win"].fill_(3e38); }),
      HasSubstr("layer0: projection, v_win: "));
  EXPECT_THAT(run([](Decoder&) {},
                  [n = 0](const at::Tensor& logits, const at::Tensor& tokens) mutable {
                    const at::Tensor loss = next_token_loss(logits, tokens);
                    return n++ == 0 ? loss : loss * std::numeric_limits<double>::infinity();
                  }),
              HasSubstr("loss: "));
}

/// Attention whose selected branch gives a NaN in layer 1, forward or backward, from finite inputs.
TEST(NonFinite, LayerBranchAndOperationAreNamed) {
  const auto random = make_synthetic_source(16, 3);
  const Rig s = make_rig(small_options(1), *random, 16);
  const at::Tensor tokens = at::arange(17).unsqueeze(0) % 16;
  const auto locate = [&](const std::function<void(NsaOutputs&)>& damage) {
    const LayerAttention attention = [&](size_t index, NsaAttentionImpl& layer,
                                         const at::Tensor& x) {
      NsaAttentionImpl::Detailed out = layer.forward_detailed(x);
      if (index == 1) damage(out.attention);
      out.y = layer.project_out(out.attention.o);
      return out;
    };
    Decoder model = s.model;
    return locate_non_finite(model, tokens, next_token_loss, attention);
  };
  EXPECT_THAT(locate([](NsaOutputs& out) {
                out.o_sel = out.o_sel.clone();
                out.o_sel.detach().view({-1})[3].fill_(NAN);
              }),
              HasSubstr("layer1: selected attention, o_sel: 1 of "));
  EXPECT_THAT(locate([](NsaOutputs& out) {
                // Finite forward; the root of 0 has an infinite derivative, 0 times that is NaN.
                out.o = out.o + (out.o * 0).sqrt();
              }),
              HasSubstr("gradient of layer1: "));
  EXPECT_EQ(locate([](NsaOutputs&) {}), "");
}

TEST(NonFinite, WeightsAreAsBefore) {
  const auto random = make_synthetic_source(16, 3);
  const TrainOptions options = small_options(5);
  const Rig s =
      make_rig(options, *random, 16, [](const at::Tensor& logits, const at::Tensor& tokens) {
        return next_token_loss(logits, tokens) * std::nan("");
      });
  std::vector<at::Tensor> before;
  for (const at::Tensor& p : s.model->parameters()) before.push_back(p.detach().clone());
  s.trainer->step(false);
  const auto after = s.model->parameters();
  for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
}

}  // namespace
}  // namespace nsa::train
