#include "nsa/train/step_graph.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "nsa/model/input_error.h"
#include "nsa/train/memory.h"

#ifdef NSA_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#endif

namespace nsa::train {
namespace {

/// A stream of its own: work on the default one cannot be captured.
c10::Stream own_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace

#ifdef NSA_WITH_CUDA
struct StepGraph::Graph : at::cuda::CUDAGraph {};
#else
struct StepGraph::Graph {
  void capture_begin() {}
  void capture_end() {}
  void replay() {}
};
#endif

std::string run_obstacle(const TrainOptions& options, bool activation_checkpointing, int64_t ranks,
                         c10::Device device) {
  if (!device.is_cuda()) return "on a device without CUDA";
#ifndef NSA_WITH_CUDA
  return "in a build without CUDA";
#endif
  if (ranks > 1) return "with several ranks, whose sums wait for one another";
  if (options.packing) return "with packing, whose documents are others in every step";
  if (activation_checkpointing) return "with activation_checkpointing, which is not captured";
  return "";
}

void require_graph(const std::string& obstacle) {
  if (!obstacle.empty())
    throw InputError("training option cuda_graph must be auto or off " + obstacle + ", got on");
}

std::string graph_obstacle(const std::vector<RanBackend>& ran) {
  for (const RanBackend& row : ran) {
    if (row.stage.ends_with(".request")) continue;
    const bool dense = row.stage.starts_with("dense_attn"), ranges = row.stage == "ranges";
    const bool attends = row.stage.find("_attn") != std::string::npos;
    const bool captures = row.backend == "fused" || (dense && row.backend == "flash") ||
                          (ranges && row.backend == "v2") || !(attends || ranges);
    if (!captures)
      return row.stage + " ran " + row.backend + ", which reads values on the host" +
             (row.reason.empty() ? "" : " (" + row.reason + ")");
  }
  return "";
}

StepGraph::StepGraph(c10::Device device, at::IntArrayRef tokens_shape)
    : device_(device),
      stream_(own_stream(device)),
      tokens_(at::empty(tokens_shape, at::TensorOptions(at::kLong).device(device))),
      graph_(std::make_unique<Graph>()) {}

StepGraph::~StepGraph() = default;

c10::Stream StepGraph::begin_step() {
  ++steps_;
  c10::Event given(device_.type());
  given.record(at::accelerator::getCurrentStream(device_.index()));
  given.block(stream_);
  return stream_;
}

void StepGraph::capture(const std::function<StepTensors()>& compute,
                        const std::vector<RanBackend>& before) {
  const std::string advice = "; train with cuda_graph off";
  const std::string obstacle = graph_obstacle(before);
  if (!obstacle.empty()) throw InputError("no CUDA graph of the step: " + obstacle + advice);
  // The graph has memory of its own: what earlier steps worked in would lie idle beside it.
  at::accelerator::synchronizeDevice(device_.index());
  at::accelerator::emptyCache();
  graph_->capture_begin();
  try {
    result_ = compute();
    graph_->capture_end();
  } catch (const c10::Error& error) {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {  // says that the capture is void
    }
    throw InputError("no CUDA graph of the step: " + std::string(error.what_without_backtrace()) +
                     advice);
  }
  captured_ = true;
  peak_mib_ = peak_memory_mib(device_);
}

const StepTensors& StepGraph::replay() {
  graph_->replay();
  return result_;
}

}  // namespace nsa::train
