#include "nsa/train/run.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "nsa/backend/kernel_code.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/model/attention_variant.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/model/document_packing.h"
#include "nsa/program/input_error.h"
#include "nsa/train/checkpoint/checkpointer.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/loop/trainer.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/memory/memory.h"
#include "nsa/train/memory/memory_report.h"
#include "nsa/train/rank_session.h"
#include "nsa/train/record/loss_file.h"
#include "nsa/train/record/run_lines.h"
#include "nsa/train/run_parts.h"
#include "nsa/train/run_report.h"

namespace nsa::train {
namespace {

/// The first steps wait for the device at every mark, later ones only if steps take this long: a
/// mark must stand for completed work, and waiting costs speed.
constexpr int64_t kWaitingSteps = 3;
constexpr double kSlowStepMs = 5000;
constexpr int64_t kProgressLines = 20;
constexpr int kStalledExit = 3;
constexpr const char* kStoppedBy = "stopped by ";

/// One run in progress.
class Run {
 public:
  Run(const TrainOptions& options, const RunContext& context)
      : options_(options), context_(context) {}

  RunEnd execute() {
    try {
      prepare();
      train();
      facts_.peak_mib = std::max(facts_.peak_mib, peak_memory_mib(device_));
    } catch (const InputError& e) {
      facts_.stopped = e.what();
    } catch (const std::invalid_argument& e) {
      facts_.stopped = e.what();
    } catch (const c10::OutOfMemoryError& e) {
      facts_.stopped = e.what_without_backtrace();
      end_by(oom_finding(config_, shape_, refused_ ? refused_ : last_allocation_failure(),
                         facts_.stopped));
    } catch (const c10::Error& e) {
      facts_.stopped = ranks_.error_prefix() + e.what_without_backtrace();
    } catch (const std::runtime_error& e) {  // of a backend of collectives
      facts_.stopped = ranks_.error_prefix() + e.what();
    }
    const std::string lost = ranks_.end_watch();
    // An error that follows from a rank that was found lost is told as that.
    if (!lost.empty() && !facts_.stopped.empty()) end_by(lost_finding(facts_.stopped = lost));
    if (stages_ && !facts_.stopped.empty()) stages_->keep();
    if (facts_.stopped.starts_with(kRankFault)) end_by(rank_finding(facts_.stopped));
    report();
    return {facts_.stopped, num_findings_};
  }

 private:
  void prepare() {
    options_.validate();
    facts_.ranks = context_.place.world;
    require_ranks(context_.place, options_.ranks);
    require_shard_group(context_.place, options_.shard_group);
    require_context_ranks(context_.place, options_.context_ranks);
    if (options_.threads > 0) at::set_num_threads(static_cast<int>(options_.threads));
    const ModelConfig& config = config_ = with_attention(
        load_model_config(options_.model, model_config_folders()), options_.attention);
    const int64_t seq_len = options_.seq_len > 0 ? options_.seq_len : config.seq_len;
    if (options_.packing && config.attention_kind == AttentionKind::kDense)
      throw InputError("training option packing must be false with the dense model " + config.name +
                       ", got true");
    const std::string kernels = context_.switches->get_text("NSA_KERNELS");
    if (kernels == "sm80" && config.attention_kind == AttentionKind::kDense)
      throw InputError("NSA_KERNELS=sm80 asks for kernels of NSA, the dense model " + config.name +
                       " runs none; unset it");
    facts_.vocab = num_token_values(config);
    facts_.has_gates = config.attention_kind == AttentionKind::kNsa;
    if (options_.context_ranks > 1) {
      if (config.attention_kind == AttentionKind::kDense)
        throw InputError("training option context_ranks must be 1 with the dense model " +
                         config.name + ", got " + std::to_string(options_.context_ranks));
      require_context_shards(config.attention, seq_len, options_.context_ranks);
    }
    facts_.context_ranks = options_.context_ranks;
    facts_.step_tokens = options_.batch * options_.accum * seq_len * facts_.row_groups();
    device_ = open_rank_device(options_.device, context_.place);
    want_kernels(kernels, device_);
    shape_ = step_shape(options_, config, seq_len, facts_.ranks, device_);
    open_data(config, seq_len);
    record_stages();
    ranks_.join(context_.place, device_, options_.rank_timeout_s, context_.out,
                [this](const Finding& finding) { end_stalled(finding); });
    ranks_.require_agreement(
        rank_settings(options_, config, identity_of(*tokens_, compute_type(options_, device_))));
    reset_peak_memory(device_);
    watch_tensor_memory(device_, options_.memory_limit_mib);
    NvtxRange::want(context_.switches->get_bool("NSA_NVTX"));
    attention_ = training_attention(*context_.switches, options_.backend, device_);
    require_memory(config, shape_, device_, refused_);
    Decoder model = make_model(options_, config, device_, attention_.options,
                               ranks_.group() != nullptr && options_.shard == "full");
    context_.print(describe_run(*model, shape_, device_, ranks_.backend()) +
                   "; data: " + tokens_->describe());
    if (config.vocab > facts_.vocab)
      context_.print("tokens are bytes, the first " + std::to_string(facts_.vocab) +
                     " of the model's vocabulary of " + std::to_string(config.vocab));
    if (!options_.weights.empty()) load_weights(*model);
    make_trainer(std::move(model), seq_len);
  }

  /// Every rank reads the weights; none goes on where one could not, or read others.
  void load_weights(DecoderImpl& model) {
    std::string loaded, failure;
    try {
      loaded = start_from_weights(options_, model);
    } catch (const InputError& e) {
      failure = e.what();
    }
    ranks_.require_agreement({{"weights", failure.empty() ? loaded : failure}});
    if (!failure.empty()) throw InputError(failure);
    context_.print("weights: " + options_.weights + ": " + loaded);
  }

  void make_trainer(Decoder model, int64_t seq_len) {
    if (options_.context_ranks > 1 && tokens_->answers_per_row() > 0)
      throw InputError("training option context_ranks must be 1 with rows of a task, got " +
                       std::to_string(options_.context_ranks));
    if (options_.context_ranks > 1)
      context_layers_ =
          std::make_unique<ContextLayers>(*ranks_.group(), *ranks_.collectives(),
                                          options_.context_ranks, config_.attention, seq_len);
    const Schedule schedule{options_.lr, options_.min_lr, options_.warmup, options_.whole_run()};
    TrainerParts parts{.model = std::move(model),
                       .tokens = tokens_.get(),
                       .loss = options_.packing ? packed_next_token_loss : next_token_loss,
                       .learning_rate = [schedule](int64_t k) { return schedule.at(k); },
                       .ranks = ranks_.group(),
                       .collectives = ranks_.collectives(),
                       .context = context_layers_.get(),
                       .stop_wanted = [this] { return signal() != 0; }};
    if (context_.exchange) {
      context_.exchange(parts);
      // A replaced part may do other work in every step.
      if (options_.cuda_graph == "auto") options_.cuda_graph = "off";
    }
    require_named_data(*parts.tokens, options_, facts_);
    for (const at::Tensor& p : parts.model->parameters())
      facts_.largest_parameter_bytes =
          std::max(facts_.largest_parameter_bytes, static_cast<int64_t>(p.nbytes()));
    trainer_ = std::make_unique<Trainer>(parts, options_, seq_len, device_);
    checkpointer_ = std::make_unique<Checkpointer>(
        options_, identity_of(*parts.tokens, parts.model->compute_type), ranks_.group());
    trace_ = checkpointer_->resume(*trainer_);
    if (options_.resume)
      ranks_.require_agreement(
          {{"checkpoints", "at step " + std::to_string(trainer_->steps_done())}});
    if (trainer_->steps_done() > 0)
      context_.print("resumed behind step " + std::to_string(trainer_->steps_done()));
    if (reports()) repeat_earlier_steps();
    first_step_ = trainer_->steps_done() + 1;
    const std::string extended = extension_line(trace_, options_.whole_run());
    if (!extended.empty()) context_.print(extended);
    if (reports() && !context_.losses.empty()) losses_ = LossFile(context_.losses, trace_);
  }

  bool is_recorded(const StepRecord& record) const {
    return record.step == first_step_ || record.validation_loss ||
           record.step % options_.record_every == 0;
  }

  /// Those of the processes that this one goes on from, so that the record is of the whole run.
  void repeat_earlier_steps() {
    for (const StepRecord& record : trace_)
      if (is_recorded(record))
        context_.lines->beat(context_.case_id, record, options_.steps, /*earlier=*/true);
  }

  /// Records the stage of every thread, to be read when this rank hangs.
  void record_stages() {
    if (context_.out.empty()) return;
    stages_ = std::make_unique<StageRecord>(
        context_.out / ("last_stage.rank" + std::to_string(context_.place.rank) + ".bin"));
  }

  RunIdentity identity_of(const TokenSource& tokens, at::ScalarType type) const {
    return run_identity(
        options_, config_,
        {.data = tokens.describe(), .ranks = facts_.ranks, .compute_type = type, .device = device_},
        *context_.switches);
  }

  /// The main thread is stuck in a call that never returns: reports that and exits.
  [[noreturn]] void end_stalled(const Finding& finding) {
    context_.print(finding.code + ": " + finding.symptom);
    context_.lines->finding(finding);
    std::_Exit(kStalledExit);
  }

  int signal() const { return context_.stop_signal ? context_.stop_signal->load() : 0; }
  bool reports() const { return context_.place.rank == 0; }

  /// Missing or foreign data ends the run; it is never replaced.
  void open_data(const ModelConfig& config, int64_t seq_len) {
    try {
      tokens_ = open_tokens(options_, config, seq_len, facts_.row_groups());
      kept_out_ = open_kept_out(options_, seq_len);
      if (kept_out_) facts_.kept_out = kept_out_->describe();
    } catch (const InputError& e) {
      end_by({"DATA_MISSING", e.what(), "data.real_bool",
              "the corpus is absent, damaged, another one or too small",
              "tools/corpus makes local_text, nsa-data one of your own"},
             e.what());
      throw;
    }
  }

  void find(const Finding& finding) {
    ++num_findings_;
    context_.lines->finding(finding);
    context_.print(finding.code + ": " + finding.symptom + "; " + finding.cause);
  }

  /// What ends the run; it is told once. `text`: for people.
  void end_by(const Finding& finding, const std::string& text) {
    ++num_findings_;
    context_.lines->finding(finding);
    context_.print("failed: " + finding.code + ": " + text);
    told_ = true;
  }
  void end_by(const Finding& finding) { end_by(finding, finding.symptom + "; " + finding.cause); }

  bool waits(int64_t step) const {
    return device_.is_cpu() || !options_.timed || step < first_step_ + kWaitingSteps ||
           (!trace_.empty() && trace_.back().step_ms > kSlowStepMs);
  }

  void train() {
    const int64_t last = options_.slice_steps > 0
                             ? std::min(options_.steps, first_step_ + options_.slice_steps - 1)
                             : options_.steps;
    if (!options_.trains()) return look();
    trainer_->start_loader();
    reset_tensor_peak(device_);
    for (int64_t step = first_step_; step <= last && facts_.stopped.empty(); ++step) {
      const bool wait_each = waits(step);
      StepRecord record = trainer_->step(wait_each, [&](Stage stage) {
        ranks_.progress();
        if (wait_each)
          context_.lines->mark(context_.case_id, step, options_.steps, stage_name(stage));
      });
      record.schedule_steps = options_.whole_run();
      const bool due = kept_out_ && (step % options_.validate_every == 0 || step == last);
      if (due && record.is_finite()) {
        const Evaluation found = validate(step);
        record.validation_loss = found.loss_nat;
        record.validation_accuracy = found.accuracy;
      }
      take(record);
      if (record.is_finite())
        checkpointer_->after_step(*trainer_, trace_, step == last || !facts_.stopped.empty());
    }
    facts_.loader = trainer_->loader_telemetry();
    facts_.bucket_bytes = trainer_->bucket_bytes();
    trainer_->finish();
    leave_ranks();
  }

  /// The loss of kept-out rows, or a text that the model continues, and nothing else.
  void look() {
    if (options_.eval) {
      const Evaluation found = validate(trainer_->steps_done());
      facts_.evaluated_loss = found.loss_nat;
      facts_.evaluated_accuracy = found.accuracy;
    } else if (reports()) {
      context_.print_text(options_.sample + sample_text(options_, trainer_->model()));
    }
    trainer_->finish();
    leave_ranks();
  }

  void leave_ranks() {
    facts_.rank_peaks_mib = ranks_.gather(tensors_peak_mib_, "exchange of the peaks of memory");
    if (context_layers_) {
      context_traffic_ =
          context_layers_->traffic(*ranks_.group(), shape_.batch, shape_.value_bytes);
      context_layers_->leave();
    }
    ranks_.leave();
  }

  Evaluation validate(int64_t step) {
    const Evaluation found = trainer_->evaluate(*kept_out_, options_.validate_batches);
    if (reports())
      context_.print(evaluation_line(step, options_.steps, found.loss_nat, found.accuracy));
    return found;
  }

  void take(const StepRecord& record) {
    ResultLines& lines = *context_.lines;
    ranks_.progress();
    const bool ends = record.step == options_.steps || !record.is_finite();
    const bool recorded = ends || is_recorded(record);
    if (recorded) lines.beat(context_.case_id, record, options_.steps);
    if (!record.is_finite()) {
      const std::string where = trainer_->locate_non_finite();
      end_by(non_finite_finding(where, record.step));
      facts_.stopped = "non-finite at step " + std::to_string(record.step) + ": " + where;
      return;
    }
    trace_.push_back(record);
    losses_.add(record);
    facts_.peak_mib = std::max(facts_.peak_mib, record.peak_mib);
    tensors_peak_mib_ = std::max(tensors_peak_mib_, tensor_peak_mib(device_));
    if (recorded && reports() && options_.timed &&
        record.step >= first_step_ + options_.untimed_steps) {
      lines.sample(context_.case_id, "step_time", record.step_ms, "ms", record.step);
      lines.sample(context_.case_id, "tok_s", record.tok_s, "tok_s", record.step);
    }
    const int64_t interval = std::max<int64_t>(1, options_.steps / kProgressLines);
    if (reports() && (record.step == first_step_ || record.step % interval == 0))
      context_.print(progress_line(record, options_.steps, median_step_ms(trace_)));
    if (trainer_->stop_agreed() && record.step < options_.steps)
      facts_.stopped = std::string(kStoppedBy) +
                       (signal() != 0 ? "signal " + std::to_string(signal()) : "another rank") +
                       " after step " + std::to_string(record.step);
  }

  void report() {
    if (reports()) {
      const auto findings =
          report_run({options_, context_, config_, shape_, attention_, trainer_.get(),
                      tensors_peak_mib_, trace_, context_traffic_},
                     facts_);
      for (const Finding& finding : findings) find(finding);
    }
    if (!facts_.stopped.empty() && !told_) context_.print(stop_text());
    context_.lines->case_end(context_.case_id, facts_.stopped);
  }

  /// How a run ended before its last step: a wish is no failure, and what was saved goes on.
  std::string stop_text() const {
    if (!facts_.stopped.starts_with(kStoppedBy)) return "failed: " + facts_.stopped;
    return facts_.stopped + (options_.checkpoints.empty() ? "; nothing was saved: no --checkpoints"
                                                          : "; saved, --resume continues");
  }

  TrainOptions options_;
  RunContext context_;
  RunFacts facts_;
  ModelConfig config_;
  StepShape shape_;
  std::optional<AllocationFailure> refused_;
  TrainingAttention attention_;
  double tensors_peak_mib_ = 0;
  at::Device device_ = at::kCPU;
  std::unique_ptr<TokenSource> tokens_;
  std::unique_ptr<TokenSource> kept_out_;  ///< null: no loss without training is measured
  std::unique_ptr<StageRecord> stages_;
  RankSession ranks_;
  std::unique_ptr<ContextLayers> context_layers_;  ///< where ranks divide rows among them
  std::vector<ContextLayers::Traffic> context_traffic_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::vector<StepRecord> trace_;
  int64_t first_step_ = 1;  ///< of this process
  LossFile losses_;
  bool told_ = false;  ///< why it ended
  int64_t num_findings_ = 0;
};

}  // namespace

RunEnd run_case(const TrainOptions& options, const RunContext& context) {
  return Run(options, context).execute();
}

}  // namespace nsa::train
