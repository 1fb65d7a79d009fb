#include "suites/phases/learning/task_training.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "nsa/model/blocks/loss.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/loop/training_model.h"
#include "suites/conformance/checks/check.h"

namespace suites {
namespace {

/// Last learning rate over the largest.
constexpr double kLastShare = 0.1;
constexpr int64_t kBeats = 100;     ///< of an arm, evenly over its steps
constexpr double kMostSilence = 1;  ///< s, before a step that is followed by a heartbeat

nsa::train::TrainOptions options_of(const TaskArm& arm, const TaskTraining& training) {
  nsa::train::TrainOptions options;
  options.steps = training.steps;
  options.batch = training.batch;
  options.weight_decay = training.weight_decay;
  options.seed = arm.seed;
  options.cuda_graph = arm.change ? "off" : "auto";  // a change acts between launches
  options.loader.threads = 0;
  options.loader.warmup_batches = 0;
  return options;
}

/// The global generator gives one model after the other its weights.
nsa::Decoder first_weights(const TaskArm& arm, at::Device device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto attention = nsa::train::training_attention(nsa::SwitchSet(), "auto", device);
  return nsa::train::training_model(arm.config, arm.seed,
                                    device.is_cpu() ? at::kFloat : at::kBFloat16, device,
                                    attention.options);
}

int64_t batches_of(int64_t rows, int64_t batch) { return (rows + batch - 1) / batch; }

/// The most rows of at most `most` that divide `rows` evenly, so that each is read once.
int64_t even_batch(int64_t rows, int64_t most) {
  int64_t batch = std::clamp<int64_t>(most, 1, rows);
  while (rows % batch != 0) --batch;
  return batch;
}

/// Right answers of rows of another length, percent; a batch has at most as many tokens as one of
/// training, or one row.
double read_other(const OtherRows& other, const nsa::Decoder& model, const TaskArm& arm,
                  const TaskTraining& training, at::Device device,
                  std::vector<nsa::RanBackend>& ran) {
  nsa::train::TrainerParts reading{.model = model,
                                   .tokens = other.rows,
                                   .loss = nsa::next_token_loss,
                                   .learning_rate = [](int64_t) { return 0.0; }};
  nsa::train::TrainOptions options = options_of(arm, training);
  options.batch =
      even_batch(training.val_rows, training.batch * arm.config.seq_len / other.seq_len);
  if (arm.change) {
    nsa::ModelConfig config = arm.config;
    config.seq_len = other.seq_len;
    arm.change(reading, config, options.batch);
    reading.learning_rate(0);  // a change acts when a step begins
  }
  nsa::train::Trainer reader(reading, options, other.seq_len, device);
  const auto found = reader.evaluate(*other.rows, batches_of(training.val_rows, options.batch));
  ran.insert(ran.end(), reader.ran().begin(), reader.ran().end());
  return 100 * found.accuracy;
}

void beat(const PhaseCase& one, const TaskArm& arm, const char* at, int64_t step, int64_t of,
          nlohmann::json extra) {
  extra["line"] = arm.name;
  one.emitter.beat(
      {.case_id = one.id, .step = step, .of = of, .at = at, .extra = std::move(extra)});
}

/// A part of a training: steps on rows of one length.
struct Stage {
  const char* name;  ///< of its heartbeats
  const nsa::train::TokenSource& rows;
  int64_t seq_len = 0, batch = 0, steps = 0;
  double lr = 0;  ///< at its peak
};

/// Takes the steps of a stage; returns their trainer.
std::unique_ptr<nsa::train::Trainer> take_steps(const Stage& stage, const nsa::Decoder& model,
                                                const TaskArm& arm, const TaskTraining& training,
                                                const PhaseCase& one) {
  const nsa::train::Schedule schedule{stage.lr, kLastShare * stage.lr, training.warmup,
                                      stage.steps};
  nsa::train::TrainerParts parts{.model = model,
                                 .tokens = &stage.rows,
                                 .loss = nsa::next_token_loss,
                                 .learning_rate = [schedule](int64_t k) { return schedule.at(k); }};
  if (arm.change) {
    nsa::ModelConfig config = arm.config;
    config.seq_len = stage.seq_len;
    arm.change(parts, config, stage.batch);
  }
  nsa::train::TrainOptions options = options_of(arm, training);
  options.steps = stage.steps;
  options.batch = stage.batch;
  auto trainer = std::make_unique<nsa::train::Trainer>(parts, options, stage.seq_len, one.device);
  for (int64_t step = 0; step < stage.steps; ++step) {
    const auto record = trainer->step(/*wait_each=*/false);
    if (!record.is_finite())
      throw std::runtime_error(arm.name + ": " + stage.name + " " + std::to_string(record.step) +
                               " is not finite: " + trainer->locate_non_finite());
    if (beat_is_due(record.step, stage.steps, one.emitter.silence_s()))
      beat(one, arm, stage.name, record.step, stage.steps, {{"loss", record.loss}});
  }
  return trainer;
}

}  // namespace

bool beat_is_due(int64_t step, int64_t steps, double silence_s) {
  const int64_t every = std::max<int64_t>(1, steps / kBeats);
  return step % every == 0 || step == steps || silence_s > kMostSilence;
}

std::vector<base::protocol::Check> kernel_checks(const PhaseCase& one,
                                                 const std::vector<nsa::RanBackend>& ran,
                                                 const std::string& arm) {
  const std::string wanted =
      nsa::to_string(one.device.is_cuda() ? nsa::BranchBackend::kFused : nsa::BranchBackend::kCpu);
  std::vector<base::protocol::Check> checks;
  for (const char* stage : {"cmp_attn", "select", "sel_attn", "win_attn"}) {
    std::set<std::string> others;
    int64_t calls = 0;
    for (const nsa::RanBackend& row : ran) {
      if (!row.stage.starts_with(stage)) continue;
      calls += row.count;
      if (row.backend != wanted)
        others.insert("; " + row.stage + " ran " + row.backend +
                      (row.reason.empty() ? "" : ": " + row.reason));
    }
    base::protocol::Check check{
        .case_id = one.id,
        .id = std::string("path/") + stage + "/" + arm,
        .ok = calls > 0 && others.empty(),
        .detail = wanted + " asked for, " + std::to_string(calls) + " calls"};
    if (!check.ok) check.code = code::kPathProof;
    for (const std::string& other : others) check.detail += other;
    checks.push_back(std::move(check));
  }
  return checks;
}

TaskResult train_on_task(const TaskArm& arm, const TaskTraining& training, const PhaseCase& one) {
  at::set_num_threads(1);
  const at::Device device = one.device;
  const auto begin = std::chrono::steady_clock::now();
  nsa::Decoder model = first_weights(arm, device);
  std::vector<nsa::RanBackend> ran;
  const auto add = [&](const std::vector<nsa::RanBackend>& more) {
    ran.insert(ran.end(), more.begin(), more.end());
  };
  const int64_t seq_len = arm.config.seq_len;
  int64_t tokens = training.steps * training.batch * seq_len;
  for (const FirstRows& first : arm.first) {
    add(take_steps({"first step", *first.rows, first.seq_len, first.batch, first.steps, first.lr},
                   model, arm, training, one)
            ->ran());
    tokens += first.steps * first.batch * first.seq_len;
  }
  const auto trainer =
      take_steps({"step", *arm.train_rows, seq_len, training.batch, training.steps, training.lr},
                 model, arm, training, one);
  const auto found =
      trainer->evaluate(*arm.kept_out, batches_of(training.val_rows, training.batch));
  if (arm.look) arm.look(model);
  std::vector<double> other_pct;
  add(trainer->ran());
  for (const OtherRows& other : arm.other_rows) {
    other_pct.push_back(read_other(other, model, arm, training, device, ran));
    beat(one, arm, "read", std::ssize(other_pct), std::ssize(arm.other_rows),
         {{"tokens", other.seq_len}});
  }
  if (arm.config.attention_kind == nsa::AttentionKind::kNsa)
    for (const auto& check : kernel_checks(one, ran, arm.name)) one.emitter.check(check);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return {.accuracy_pct = 100 * found.accuracy,
          .loss_nat = found.loss_nat,
          .other_pct = std::move(other_pct),
          .tokens = tokens,
          .seconds = taken.count()};
}

void train_arms(size_t count, int64_t threads, const std::function<void(size_t)>& train) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failed;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        train(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = std::current_exception();
        next = count;
      }
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace suites
