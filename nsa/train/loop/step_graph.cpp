#include "nsa/train/loop/step_graph.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>

#include <map>
#include <mutex>

#include "nsa/program/input_error.h"
#include "nsa/train/memory/memory.h"

#ifdef NSA_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace nsa::train {
namespace {

/// Work on the default stream cannot be captured. The library's pool hands its 32 streams out again
/// and again, also to callbacks that wait for sums of gradients: where such a one met a step, the
/// step waited for that sum (two H200s, m7c_125m, 2k B 2: .2 to .9 ms in every third step). Never
/// destroyed, as tensors that were used on it may live on; so there is one for each device.
c10::Stream own_stream(c10::Device device) {
#ifdef NSA_WITH_CUDA
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, cudaStream_t> made;
  const std::lock_guard lock(mutex);
  const c10::DeviceGuard guard(device);
  cudaStream_t& stream = made[device.index()];
  if (stream == nullptr) C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return c10::cuda::getStreamFromExternal(stream, device.index()).unwrap();
#else
  return c10::Stream(c10::Stream::DEFAULT, device);
#endif
}

}  // namespace

#ifdef NSA_WITH_CUDA
struct StepGraph::Graph : at::cuda::CUDAGraph {
  /// Graphs of a step share the memory of the first. Relaxed, as a backward pass ends a capture on
  /// a thread of its own.
  void begin(Graph* first) {
    capture_begin(first ? first->pool() : at::cuda::graph_pool_handle(),
                  cudaStreamCaptureModeRelaxed);
  }
};
#else
struct StepGraph::Graph {
  void begin(Graph*) {}
  void capture_end() {}
  void replay() {}
};
#endif

std::string run_obstacle(const TrainOptions& options, bool activation_checkpointing,
                         c10::Device device) {
  if (!device.is_cuda()) return "on a device without CUDA";
#ifndef NSA_WITH_CUDA
  return "in a build without CUDA";
#endif
  if (options.context_ranks > 1) return "with context_ranks, which exchange keys in every layer";
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
    const bool chooses = row.stage == "select" && row.backend == "plain";
    const bool captures = row.backend == "fused" || (dense && row.backend == "flash") ||
                          (ranges && row.backend == "v2") || !(attends || ranges || chooses);
    if (!captures)
      return row.stage + " ran " + row.backend + ", which reads values on the host" +
             (row.reason.empty() ? "" : " (" + row.reason + ")");
  }
  return "";
}

StepGraph::StepGraph(c10::Device device, at::IntArrayRef rows_shape)
    : device_(device),
      stream_(own_stream(device)),
      rows_(at::empty(rows_shape, at::TensorOptions(at::kLong).device(device))) {}

StepGraph::~StepGraph() = default;

c10::Stream StepGraph::begin_step() {
  ++steps_;
  return follow();
}

c10::Stream StepGraph::follow() {
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
  begin_graph();
  try {
    result_ = compute();
    graphs_.back()->capture_end();
  } catch (const c10::Error& error) {
    try {
      graphs_.back()->capture_end();
    } catch (const c10::Error&) {  // expected: the capture is void
    }
    throw InputError("no CUDA graph of the step: " + std::string(error.what_without_backtrace()) +
                     advice);
  }
  captured_ = true;
  peak_mib_ = peak_memory_mib(device_);
}

void StepGraph::begin_graph() {
  Graph* first = graphs_.empty() ? nullptr : graphs_.front().get();
  graphs_.push_back(std::make_unique<Graph>());
  graphs_.back()->begin(first);
}

void StepGraph::cut(std::function<void()> between) {
  graphs_.back()->capture_end();
  between_.push_back(std::move(between));
  begin_graph();
}

const StepTensors& StepGraph::replay() {
  for (size_t i = 0; i < graphs_.size(); ++i) {
    if (i > 0) between_[i - 1]();
    graphs_[i]->replay();
  }
  return result_;
}

void StepGraph::release() {
  if (!captured_) return;
  at::accelerator::synchronizeDevice(device_.index());
  graphs_.clear();
  between_.clear();
}

}  // namespace nsa::train
