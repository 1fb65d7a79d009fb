#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nsa/diagnostics/run_record.h"
#include "nsa/train/train_options.h"

namespace nsa::train {

/// What the device's part of a step leaves, on the device.
struct StepTensors {
  at::Tensor loss;                ///< of this rank: the mean over ranks is that over the targets
  at::Tensor targets;             ///< fp64 [1], of all ranks; undefined: every position is one
  at::Tensor norm;                ///< of all gradients before clipping
  std::vector<at::Tensor> gates;  ///< of the last micro-batch
  at::Tensor host_values;         ///< fp64, read by the host (Trainer::pack_host_values)
  std::vector<RanBackend> ran;
};

/// Whether steps are launches of a graph, and with option auto why not.
struct GraphUse {
  bool captured = false;
  std::string reason = {};
};

/// Why steps cannot all be the same work: on a CPU, with packed documents or activation
/// checkpointing. Empty if no obstacle is known so far.
std::string run_obstacle(const TrainOptions& options, bool activation_checkpointing,
                         c10::Device device);
/// Throws InputError with such an obstacle unless it is empty.
void require_graph(const std::string& obstacle);

/// Why a step in which this ran cannot be captured: a backend that reads values on the host. Empty
/// if no obstacle is known.
std::string graph_obstacle(const std::vector<RanBackend>& ran);

/// Forward, backward and update of an optimizer step as one CUDA graph, or as several that are
/// launched one after the other with work of the host between them (sums over ranks). The first
/// steps run as always, on the stream of the graph; then one is captured, and it and every later
/// one are a launch of the graph with other tokens and another learning rate in the same places.
class StepGraph {
 public:
  /// rows: int64 [accum, B, tokens of a row, and behind them the answers of a task].
  StepGraph(c10::Device device, at::IntArrayRef rows_shape);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Lets the graph's stream wait for what the current one was given; the caller goes on there.
  c10::Stream follow();
  /// The same, and counts steps: the first three are no graph.
  c10::Stream begin_step();
  bool due() const { return steps_ > kStepsBefore; }
  /// The next step is the first that would be a launch.
  bool due_next() const { return steps_ == kStepsBefore; }
  bool captured() const { return captured_; }

  const at::Tensor& rows() const { return rows_; }
  /// Records what `compute` launches on the graph's stream; nothing runs. `before`: what ran in the
  /// steps so far. Throws InputError with the obstacle.
  void capture(const std::function<StepTensors()>& compute, const std::vector<RanBackend>& before);
  /// Called by `compute`, from any thread: ends a graph here and begins the next. At every
  /// launch `between` runs between the two.
  void cut(std::function<void()> between);
  /// Launches it; the result is in the same tensors every time.
  const StepTensors& replay();
  /// Gives the graph and its memory back; no step may follow.
  void release();
  /// Largest device memory while it was captured, which is what a launch works in.
  double peak_mib() const { return peak_mib_; }

 private:
  static constexpr int64_t kStepsBefore = 3;
  struct Graph;
  void begin_graph();
  c10::Device device_;
  c10::Stream stream_;
  at::Tensor rows_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::vector<std::function<void()>> between_;  ///< one less than graphs
  StepTensors result_;
  int64_t steps_ = 0;
  bool captured_ = false;
  double peak_mib_ = 0;
};

}  // namespace nsa::train
