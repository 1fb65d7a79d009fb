// The loop's properties on models small enough to train in a second.
#include "nsa/train/loop/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/testing/paths.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/model/document_packing.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/loop/trainer_testing.h"
#include "nsa/train/record/judge.h"

namespace nsa::train {
namespace {

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

/// Stages never overlap. Between them a process that others keep from its processor may wait, which
/// no stage counts: of several steps one is undisturbed.
TEST(Trainer, EveryStageIsReportedInOrder) {
  constexpr int kSteps = 20;
  const auto random = make_synthetic_source(16, 3);
  TrainOptions options = small_options(kSteps);
  options.batch = 1, options.accum = 2;
  const Rig s = make_rig(options, *random, 16);
  double best = 0;
  for (int i = 0; i < kSteps; ++i) {
    std::string order;
    const StepRecord r = s.trainer->step(true, [&](Stage stage) { order += stage_name(stage)[0]; });
    EXPECT_EQ(order, "lfblfbo");
    const double stages = r.load_ms + r.forward_ms + r.backward_ms + r.optimizer_ms;
    EXPECT_LE(stages, r.step_ms);
    best = std::max(best, stages / r.step_ms);
  }
  EXPECT_GE(best, 0.8);
}

}  // namespace
}  // namespace nsa::train
