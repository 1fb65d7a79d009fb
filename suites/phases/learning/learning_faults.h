#pragma once
#include <string>

#include "suites/phases/learning/task_training.h"

namespace suites {

/// Spoils an NSA model while it learns and reads: random_blocks, every step and every query takes
/// the forced blocks and random ones in the place of those with the largest scores; only_window,
/// the gates of the other branches are 0; plain_selection, operators in the place of the kernels of
/// the selected branch; learns_nothing, a learning rate of 0. Nothing for "". Throws ConfigError
/// for another word.
void inject_learning_fault(TaskArm& arm, const std::string& fault);

}  // namespace suites
