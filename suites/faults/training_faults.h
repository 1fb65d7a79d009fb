#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "nsa/train/loop/trainer.h"

/// Historical failures of training, injected around the parts of a trainer.
namespace suites {

struct TrainingFault {
  std::string_view id;    ///< "P14"
  std::string_view what;  ///< what is injected
  std::string_view code;  ///< failure code that must be reported
  void (*inject)(nsa::train::TrainerParts& parts, const nsa::train::TrainOptions& options);
};

/// Every fault of training, in order of id.
const std::vector<TrainingFault>& training_fault_table();

/// The entry called `id`. Throws nsa::InputError naming the id and the nearest one.
const TrainingFault& find_training_fault(const std::string& id);

}  // namespace suites
