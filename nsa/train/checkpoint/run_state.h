#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "nsa/tensor_file/tensor_file.h"
#include "nsa/train/loop/step_record.h"
#include "nsa/train/loop/trainer.h"

namespace nsa::train {

using FileTensors = std::map<std::string, tensor_file::FileTensor>;

/// A tensor (fp32, fp64 or uint8, on any device) as it lies in a file, and back, on the CPU. The
/// latter throws InputError for another type.
tensor_file::FileTensor to_file(const at::Tensor& tensor);
at::Tensor from_file(const tensor_file::FileTensor& file);

/// Hands out the tensors of a checkpoint, each once. Throws InputError naming a tensor that is
/// missing, left over at the end, or unlike the one it must be like. `tensors` outlive it.
class TensorReader {
 public:
  explicit TensorReader(const FileTensors& tensors);
  at::Tensor take(const std::string& name);
  /// Of the type and shape of `like`.
  at::Tensor take_like(const std::string& name, const at::Tensor& like);
  void finish() const;

 private:
  const FileTensors& tensors_;
  std::set<std::string> left_;
};

/// What a run has beside parameters and moments: number of updates, states of the generators,
/// position in the data, and the trace of the steps done. All ranks have the same.
void add_run_state(const Trainer& trainer, const std::vector<StepRecord>& trace,
                   FileTensors& tensors);
/// Puts it back, behind step `step`; returns the trace.
std::vector<StepRecord> restore_run_state(TensorReader& reader, int64_t step, Trainer& trainer);

}  // namespace nsa::train
