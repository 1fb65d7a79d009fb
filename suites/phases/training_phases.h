#pragma once
#include "suites/phases/phase.h"

/// Phase kinds that train.
namespace suites {

std::string run_checkpointing_ab(const PhaseCase& one);
std::string run_context_parallel(const PhaseCase& one);
std::string run_ddp_sweep(const PhaseCase& one);
std::string run_recall(const PhaseCase& one);
std::string run_retrieval(const PhaseCase& one);
std::string run_sharded_training(const PhaseCase& one);
std::string run_validation(const PhaseCase& one);

}  // namespace suites
