#include "nsa/train/checkpoint/run_state.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

using tensor_file::Dtype;
using tensor_file::FileTensor;

const std::pair<at::ScalarType, Dtype> kTypes[] = {
    {at::kFloat, Dtype::kF32}, {at::kDouble, Dtype::kF64}, {at::kByte, Dtype::kU8}};

}  // namespace

FileTensor to_file(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  FileTensor result;
  const auto* type =
      std::ranges::find(kTypes, host.scalar_type(), &std::pair<at::ScalarType, Dtype>::first);
  TORCH_INTERNAL_ASSERT(type != std::end(kTypes), "no checkpoint type for ", host.scalar_type());
  result.dtype = type->second;
  result.shape = host.sizes().vec();
  result.bytes.resize(host.nbytes());
  std::memcpy(result.bytes.data(), host.const_data_ptr(), host.nbytes());
  return result;
}

at::Tensor from_file(const FileTensor& file) {
  const auto* type =
      std::ranges::find(kTypes, file.dtype, &std::pair<at::ScalarType, Dtype>::second);
  if (type == std::end(kTypes))
    throw InputError("of type " + std::string(name_of(file.dtype)) + ", which no state has");
  at::Tensor tensor = at::empty(file.shape, type->first);
  std::memcpy(tensor.data_ptr(), file.bytes.data(), file.bytes.size());
  return tensor;
}

namespace {

/// The generators a run may draw from: the CPU's and, on a GPU, that of the device.
std::vector<std::pair<std::string, at::Generator>> generators(at::Device device) {
  std::vector<std::pair<std::string, at::Generator>> list = {
      {"generator.cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (!device.is_cpu())
    list.emplace_back("generator.device", at::globalContext().defaultGenerator(device));
  return list;
}

constexpr double StepRecord::* kFigures[] = {
    &StepRecord::loss,         &StepRecord::grad_norm,     &StepRecord::lr,
    &StepRecord::load_ms,      &StepRecord::forward_ms,    &StepRecord::backward_ms,
    &StepRecord::optimizer_ms, &StepRecord::collective_ms, &StepRecord::step_ms,
    &StepRecord::tok_s,        &StepRecord::mem_mib,       &StepRecord::peak_mib};
constexpr double GateStats::* kGates[] = {&GateStats::cmp,
                                          &GateStats::sel,
                                          &GateStats::win,
                                          &GateStats::entropy,
                                          &GateStats::layer_entropy_min,
                                          &GateStats::layer_entropy_max,
                                          &GateStats::layer_spread_min};
constexpr int64_t kOldTraceWidth = 2 + std::size(kFigures) + std::size(kGates);
/// Behind them the number of targets, then the length of the schedule; older versions end before.
constexpr int64_t StepRecord::* kCounts[] = {&StepRecord::targets, &StepRecord::schedule_steps};
/// Then figures of kept-out rows, where they were measured; none of them can be negative.
constexpr std::optional<double> StepRecord::* kMeasured[] = {&StepRecord::validation_loss,
                                                             &StepRecord::validation_accuracy};
constexpr double kNotMeasured = -1;
constexpr int64_t kCountsEnd = kOldTraceWidth + static_cast<int64_t>(std::size(kCounts));
constexpr int64_t kTraceWidth = kCountsEnd + static_cast<int64_t>(std::size(kMeasured));

at::Tensor trace_to_tensor(const std::vector<StepRecord>& trace) {
  at::Tensor rows = at::empty({static_cast<int64_t>(trace.size()), kTraceWidth}, at::kDouble);
  double* next = rows.data_ptr<double>();
  for (const StepRecord& record : trace) {
    *next++ = static_cast<double>(record.step);
    *next++ = static_cast<double>(record.rows);
    for (const auto figure : kFigures) *next++ = record.*figure;
    for (const auto gate : kGates) *next++ = record.gate.*gate;
    for (const auto count : kCounts) *next++ = static_cast<double>(record.*count);
    for (const auto figure : kMeasured) *next++ = (record.*figure).value_or(kNotMeasured);
  }
  return rows;
}

std::vector<StepRecord> trace_from_tensor(const at::Tensor& rows) {
  const bool fits = rows.dim() == 2 && rows.scalar_type() == at::kDouble &&
                    rows.size(1) >= kOldTraceWidth && rows.size(1) <= kTraceWidth;
  if (!fits)
    throw InputError("checkpoint: trace must be F64 [steps, " + std::to_string(kTraceWidth) + "]");
  std::vector<StepRecord> trace(static_cast<size_t>(rows.size(0)));
  const double* next = rows.data_ptr<double>();
  for (StepRecord& record : trace) {
    record.step = static_cast<int64_t>(*next++);
    record.rows = static_cast<int64_t>(*next++);
    for (const auto figure : kFigures) record.*figure = *next++;
    for (const auto gate : kGates) record.gate.*gate = *next++;
    for (int64_t i = kOldTraceWidth; i < std::min(kCountsEnd, rows.size(1)); ++i)
      record.*kCounts[i - kOldTraceWidth] = static_cast<int64_t>(*next++);
    for (int64_t i = kCountsEnd; i < rows.size(1); ++i, ++next)
      if (*next != kNotMeasured) record.*kMeasured[i - kCountsEnd] = *next;
  }
  return trace;
}

}  // namespace

TensorReader::TensorReader(const FileTensors& tensors) : tensors_(tensors) {
  for (const auto& [name, _] : tensors_) left_.insert(name);
}

at::Tensor TensorReader::take(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw InputError("checkpoint: tensor " + name + " is missing");
  left_.erase(name);
  return from_file(found->second);
}

at::Tensor TensorReader::take_like(const std::string& name, const at::Tensor& like) {
  at::Tensor source = take(name);
  if (source.sizes() != like.sizes() || source.scalar_type() != like.scalar_type())
    throw InputError("checkpoint: tensor " + name + " is " + c10::toString(source.scalar_type()) +
                     " " + c10::str(source.sizes()) + ", this model needs " +
                     c10::toString(like.scalar_type()) + " " + c10::str(like.sizes()));
  return source;
}

void TensorReader::finish() const {
  if (!left_.empty())
    throw InputError("checkpoint: tensor " + *left_.begin() + " is unknown to this model");
}

void add_run_state(const Trainer& trainer, const std::vector<StepRecord>& trace,
                   FileTensors& tensors) {
  tensors["update_count"] = to_file(trainer.optimizer().update_count());
  for (auto& [name, generator] : generators(trainer.device())) {
    const std::lock_guard lock(generator.mutex());
    tensors[name] = to_file(generator.get_state());
  }
  tensors["rows"] =
      to_file(at::scalar_tensor(static_cast<double>(trainer.rows_done()), at::kDouble));
  tensors["trace"] = to_file(trace_to_tensor(trace));
}

std::vector<StepRecord> restore_run_state(TensorReader& reader, int64_t step, Trainer& trainer) {
  const at::Tensor& updates = trainer.optimizer().update_count();
  updates.copy_(reader.take_like("update_count", updates));
  for (auto& [name, generator] : generators(trainer.device())) {
    const at::Tensor state = reader.take(name);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
  trainer.set_position(step, static_cast<int64_t>(reader.take("rows").item<double>()));
  return trace_from_tensor(reader.take("trace"));
}

}  // namespace nsa::train
