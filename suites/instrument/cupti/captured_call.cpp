#include "suites/instrument/cupti/captured_call.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

namespace suites {
namespace {

void note_node(cudaGraphNode_t node, Launches& launches) {
  cudaGraphNodeType type{};
  C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
  if (type == cudaGraphNodeTypeKernel) {
    cudaKernelNodeParams kernel{};
    const char* name = nullptr;
    const bool known = cudaGraphKernelNodeGetParams(node, &kernel) == cudaSuccess &&
                       cudaFuncGetName(&name, kernel.func) == cudaSuccess && name != nullptr;
    if (!known) static_cast<void>(cudaGetLastError());  // a kernel of a library's own module
    launches.kernels.emplace_back(known ? name : "unnamed");
  } else if (type == cudaGraphNodeTypeMemset) {
    cudaMemsetParams fill{};
    C10_CUDA_CHECK(cudaGraphMemsetNodeGetParams(node, &fill));
    ++launches.fills;
    launches.fill_bytes += static_cast<int64_t>(fill.width * fill.height) * fill.elementSize;
  } else if (type == cudaGraphNodeTypeMemcpy) {
    ++launches.copies;
  }
}

Launches launches_of(cudaGraph_t graph) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  Launches launches;
  for (const cudaGraphNode_t node : nodes) note_node(node, launches);
  return launches;
}

/// Ends a capture that failed, and gives back the memory it took. A stream that goes on capturing
/// would make every later call on the device an error.
void abandon(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  try {
    graph.capture_end();
  } catch (const c10::Error&) {  // expected: the capture is void
    try {
      const c10::DeviceIndex device = c10::cuda::current_device();
      allocator::endAllocateToPool(device, pool);
      allocator::releasePool(device, pool);
    } catch (const c10::Error&) {  // capture_end did so
    }
  }
  static_cast<void>(cudaGetLastError());
}

}  // namespace

nlohmann::json launches_json(const Launches& launches) {
  nlohmann::json kernels = nlohmann::json::object();
  for (const std::string& name : launches.kernels) kernels[name] = kernels.value(name, 0) + 1;
  return {{"total", launches.total()},
          {"kernels", kernels},
          {"fills", launches.fills},
          {"fill_bytes", launches.fill_bytes},
          {"copies", launches.copies}};
}

CapturedCall::CapturedCall(const std::function<void()>& work) {
  c10::cuda::device_synchronize();
  // During a capture the allocator gives nothing back, so that what earlier work left would be lost
  // to it.
  c10::cuda::CUDACachingAllocator::emptyCache();
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    const at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
    graph_.capture_begin(pool);
    try {
      work();
    } catch (...) {
      abandon(graph_, pool);
      throw;
    }
    graph_.capture_end();
  }
  launches_ = launches_of(graph_.raw_cuda_graph());
  graph_.instantiate();
}

}  // namespace suites
