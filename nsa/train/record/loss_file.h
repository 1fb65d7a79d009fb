#pragma once
#include <filesystem>
#include <fstream>
#include <vector>

#include "nsa/train/loop/step_record.h"

namespace nsa::train {

/// The losses of a run as CSV, a line a step as it ends: step, loss_nat, validation_loss_nat (empty
/// where it was not measured), learning_rate, gradient_norm, tokens_per_second.
class LossFile {
 public:
  LossFile() = default;  ///< writes nothing
  /// Begins the file with `trace`, the steps of a run that is continued. Throws InputError where it
  /// cannot be opened.
  LossFile(const std::filesystem::path& path, const std::vector<StepRecord>& trace);

  /// Throws std::runtime_error where the line cannot be written.
  void add(const StepRecord& record);

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace nsa::train
