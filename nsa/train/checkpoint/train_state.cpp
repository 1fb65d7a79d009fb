#include "nsa/train/checkpoint/train_state.h"

#include <ATen/core/grad_mode.h>

#include "nsa/train/checkpoint/run_state.h"

namespace nsa::train {

Checkpoint take_checkpoint(const Trainer& trainer, const std::vector<StepRecord>& trace) {
  Checkpoint checkpoint{trainer.steps_done(), {}};
  const auto parameters = trainer.model()->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const AdamW::Moments moments = trainer.whole_moments(i);
    if (trainer.rank() != 0) continue;  // took part in collecting them, that is all
    checkpoint.tensors["parameter." + parameters[i].key()] = to_file(parameters[i].value());
    checkpoint.tensors["first_moment." + parameters[i].key()] = to_file(moments.first);
    checkpoint.tensors["second_moment." + parameters[i].key()] = to_file(moments.second);
  }
  add_run_state(trainer, trace, checkpoint.tensors);
  return checkpoint;
}

std::vector<StepRecord> restore_checkpoint(const Checkpoint& checkpoint, Trainer& trainer) {
  const at::NoGradGuard no_grad;
  TensorReader reader(checkpoint.tensors);
  const auto parameters = trainer.model()->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const AdamW::Moments& moments = trainer.optimizer().moments(i);
    const auto restore = [&](const std::string& kind, const at::Tensor& target) {
      const at::Tensor whole =
          reader.take_like(kind + "." + parameters[i].key(), parameters[i].value());
      if (!target.defined()) return;  // another rank keeps it
      const ShardLayout::Piece kept = trainer.kept_piece(i);
      target.view({-1}).copy_(whole.flatten().narrow(0, kept.in_parameter, kept.size));
    };
    restore("parameter", trainer.optimizer().parameter(i));
    restore("first_moment", moments.first);
    restore("second_moment", moments.second);
  }
  std::vector<StepRecord> trace = restore_run_state(reader, checkpoint.step, trainer);
  reader.finish();
  return trace;
}

}  // namespace nsa::train
