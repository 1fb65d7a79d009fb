#include "suites/faults/training_faults.h"

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/text/nearest.h"
#include "nsa/program/input_error.h"

namespace suites {
namespace {

using at::Tensor;
using nsa::train::TokenSource;
using nsa::train::TrainerParts;
using nsa::train::TrainOptions;

void pause_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// P10: every step takes long, and is one all the same.
void slow_step(TrainerParts& parts, const TrainOptions&) {
  parts.loss = [base = parts.loss](const Tensor& logits, const Tensor& tokens) {
    pause_ms(400);
    return base(logits, tokens);
  };
}

/// A step takes a tenth longer; the work on the device, its graph included, stays as it is.
void slower_by_a_tenth(TrainerParts& parts, const TrainOptions&) {
  using Clock = std::chrono::steady_clock;
  parts.learning_rate = [base = parts.learning_rate, last = Clock::time_point(),
                         first = true](int64_t step) mutable {
    const auto taken = Clock::now() - last;
    if (!first) std::this_thread::sleep_for(taken / 10);
    first = false;
    last = Clock::now();
    return base(step);
  };
}

/// P11: the third step's loss never comes.
void hanging_step(TrainerParts& parts, const TrainOptions& options) {
  parts.loss = [base = parts.loss, calls = int64_t{0}, last = 2 * options.accum](
                   const Tensor& logits, const Tensor& tokens) mutable {
    while (calls >= last) pause_ms(1000);
    ++calls;
    return base(logits, tokens);
  };
}

/// P14: position t is asked for token t, which it sees.
void label_shift_missing(TrainerParts& parts, const TrainOptions&) {
  parts.loss = [base = parts.loss](const Tensor& logits, const Tensor& tokens) {
    const Tensor seen = tokens.slice(1, 0, -1);
    return base(logits, at::cat({tokens.slice(1, 0, 1), seen}, 1));
  };
}

/// P15: before the third step the values of the selected branch of layer 1 become too large for
/// their type.
void values_overflow(TrainerParts& parts, const TrainOptions&) {
  parts.learning_rate = [base = parts.learning_rate, model = parts.model](int64_t step) {
    if (step == 2)
      for (const auto& item : model->named_parameters())
        if (item.key().ends_with("1.attention.w_v_sel")) item.value().detach().sign_().mul_(3e38);
    return base(step);
  };
}

/// P16: random tokens where a corpus was named.
void data_replaced(TrainerParts& parts, const TrainOptions& options) {
  static const std::unique_ptr<TokenSource> kRandom =
      nsa::train::make_synthetic_source(256, options.seed);
  parts.tokens = kRandom.get();
}

/// Rows that take their time.
class SlowTokens : public TokenSource {
 public:
  explicit SlowTokens(const TokenSource* base) : base_(base) {}
  void read_row(int64_t row, std::span<uint8_t> out) const override {
    pause_ms(row == 0 ? 500 : 80);
    base_->read_row(row, out);
  }
  bool is_real() const override { return base_->is_real(); }
  std::string describe() const override { return base_->describe(); }

 private:
  const TokenSource* base_;
};

/// P17: the first batch comes late, the others cost more than the step.
void loader_stalls(TrainerParts& parts, const TrainOptions&) {
  static std::unique_ptr<TokenSource> slow;
  slow = std::make_unique<SlowTokens>(parts.tokens);
  parts.tokens = slow.get();
}

/// P18: the schedule counts micro-batches.
void schedule_counts_micro_batches(TrainerParts& parts, const TrainOptions& options) {
  parts.learning_rate = [base = parts.learning_rate, accum = options.accum](int64_t step) {
    return base(step * accum);
  };
}

/// Rows counted from the first one that is asked for, as when a run forgets where it stopped.
class RestartedTokens : public TokenSource {
 public:
  explicit RestartedTokens(const TokenSource* base) : base_(base) {}
  void read_row(int64_t row, std::span<uint8_t> out) const override {
    int64_t none = -1;
    first_.compare_exchange_strong(none, row);
    base_->read_row(row >= first_ ? row - first_ : row, out);
  }
  bool is_real() const override { return base_->is_real(); }
  std::string describe() const override { return base_->describe(); }

 private:
  const TokenSource* base_;
  mutable std::atomic<int64_t> first_ = -1;
};

/// P19: a resumed run reads its data from the beginning.
void data_position_lost(TrainerParts& parts, const TrainOptions&) {
  static std::unique_ptr<TokenSource> restarted;
  restarted = std::make_unique<RestartedTokens>(parts.tokens);
  parts.tokens = restarted.get();
}

/// P20: no gradient reaches any weight, so its norm is 0 for ever.
void gradients_cleared(TrainerParts& parts, const TrainOptions&) {
  parts.loss = [base = parts.loss](const Tensor& logits, const Tensor& tokens) {
    return base(logits.detach(), tokens) + 0.0 * logits.sum();
  };
}

/// Hands out the weights of the gates.
void each_gate_weight(const nsa::Decoder& model, const std::function<void(const Tensor&)>& change) {
  for (const auto& item : model->named_parameters())
    if (item.key().find(".gate_") != std::string::npos) change(item.value().detach());
}

/// Gates that are the same for every token, whatever is learnt.
void gates_stuck(TrainerParts& parts, const TrainOptions&) {
  parts.learning_rate = [base = parts.learning_rate, model = parts.model](int64_t step) {
    each_gate_weight(model, [](const Tensor& weight) { weight.zero_(); });
    return base(step);
  };
}

/// Gates that let one branch through alone.
void gates_collapsed(TrainerParts& parts, const TrainOptions&) {
  each_gate_weight(parts.model, [](const Tensor& weight) { weight.mul_(1e4); });
}

/// The warm-up reads beside the prefetch, as history had it, and long enough to meet it.
void warmup_overlaps(TrainerParts& parts, const TrainOptions& options) {
  loader_stalls(parts, options);
  parts.load = [](nsa::train::LoaderOptions asked) {
    asked.warmup_batches = 16;
    asked.concurrent_warmup = true;
    return asked;
  };
}

/// 8 MiB more with every micro-batch.
void memory_leaks(TrainerParts& parts, const TrainOptions&) {
  parts.loss = [base = parts.loss, kept = std::make_shared<std::vector<Tensor>>()](
                   const Tensor& logits, const Tensor& tokens) {
    kept->push_back(at::ones({int64_t{2} << 20}, logits.options().dtype(at::kFloat)));
    return base(logits, tokens);
  };
}

/// P22: the reducer is given no cap, so that every gradient travels alone.
void bucket_cap_ignored(TrainerParts& parts, const TrainOptions&) {
  parts.reduce = [](const nsa::train::ReducerOptions& asked) {
    nsa::train::ReducerOptions in_force = asked;
    in_force.bucket_mib = 0;
    return in_force;
  };
}

}  // namespace

const std::vector<TrainingFault>& training_fault_table() {
  static const std::vector<TrainingFault> table = {
      {"P10", "every step waits 0.4 s", "SLOW", slow_step},
      {"slower_by_a_tenth", "a step takes a tenth longer", "SLOW", slower_by_a_tenth},
      {"P11", "the third step never ends", "HANG", hanging_step},
      {"P14", "targets are inputs: label shift missing", "LOSS_TOO_GOOD", label_shift_missing},
      {"P15", "values of one branch overflow", "NON_FINITE", values_overflow},
      {"P16", "named corpus replaced by random tokens", "DATA_SUBSTITUTED", data_replaced},
      {"P17", "loader slower than the step, first batch late", "LOADER_STALL", loader_stalls},
      {"P18", "schedule counts micro-batches", "LR_TRACE", schedule_counts_micro_batches},
      {"P19", "data position lost over a checkpoint", "RESUME_DIFFERS", data_position_lost},
      {"P20", "gradients cleared before they are read", "STUCK_METRIC", gradients_cleared},
      {"gates_collapsed", "gates let one branch through alone", "STUCK_METRIC", gates_collapsed},
      {"gates_stuck", "gates are the same for every token", "STUCK_METRIC", gates_stuck},
      {"memory_leaks", "8 MiB more with every micro-batch", "MEMORY_GROWS", memory_leaks},
      {"warmup_overlaps", "warm-up and prefetch read together", "LOADER_STALL", warmup_overlaps},
      {"P22", "bucket cap asked for and not in force", "BUCKET_MISMATCH", bucket_cap_ignored},
  };
  return table;
}

const TrainingFault& find_training_fault(const std::string& id) {
  std::vector<std::string> names;
  for (const TrainingFault& fault : training_fault_table()) {
    if (fault.id == id) return fault;
    names.emplace_back(fault.id);
  }
  throw nsa::InputError("fault must be one of the faults of training, got \"" + id +
                        "\"; nearest: " + base::closest_name(id, names));
}

}  // namespace suites
