#pragma once
#include <vector>

#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/loop/step_record.h"
#include "nsa/train/loop/trainer.h"

namespace nsa::train {

/// Everything a run needs to go on bit for bit: parameters, moments, number of updates, states of
/// the generators, position in the data, and the trace of the steps done, which its judgement
/// needs. Waits for the device. Collective: every rank calls it, that of rank 0 is whole. The
/// generators are those of rank 0; all ranks have equal ones, for no step draws from them. Not of
/// sharded parameters (sharded_state.h).
Checkpoint take_checkpoint(const Trainer& trainer, const std::vector<StepRecord>& trace);

/// Puts a checkpoint into a trainer that has done nothing yet; returns the trace. Throws InputError
/// naming a tensor that is missing, left over, or of another shape or type than the model's.
std::vector<StepRecord> restore_checkpoint(const Checkpoint& checkpoint, Trainer& trainer);

}  // namespace nsa::train
