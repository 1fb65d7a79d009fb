#pragma once
#include <functional>
#include <string>

#include "nsa/model/model_config.h"
#include "nsa/train/loop/trainer.h"

namespace suites {

/// What spoils an NSA model while it learns: random_blocks, every step and every query takes the
/// forced blocks and random ones in the place of those with the largest scores. Empty for "".
/// Throws ConfigError for another word.
std::function<void(nsa::train::TrainerParts&)> learning_fault(const std::string& fault,
                                                              const nsa::ModelConfig& config,
                                                              int64_t batch);

}  // namespace suites
