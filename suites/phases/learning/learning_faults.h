#pragma once
#include <string>

#include "suites/phases/learning/task_training.h"

namespace suites {

/// What spoils an NSA model of this size while it learns and reads: random_blocks, every step and
/// every query takes the forced blocks and random ones in the place of those with the largest
/// scores; plain_selection, operators in the place of the kernels of the selected branch. Empty for
/// "". Throws ConfigError for another word.
TaskChange learning_fault(const std::string& fault);

}  // namespace suites
