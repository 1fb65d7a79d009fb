#pragma once
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace suites {

/// What a captured call enqueues.
struct Launches {
  std::vector<std::string> kernels;  ///< names as the compiler mangles them, in no promised order
  int64_t fills = 0, fill_bytes = 0;
  int64_t copies = 0;

  int64_t total() const { return static_cast<int64_t>(kernels.size()) + fills + copies; }
};

/// {"total", "kernels": {NAME: count}, "fills", "fill_bytes", "copies"}.
nlohmann::json launches_json(const Launches& launches);

/// One call of `work` in a CUDA graph: what it enqueues is counted without a profiler, and can be
/// run again on the same addresses. `work` runs once, on a stream of its own, and nothing is
/// computed before replay(). Throws c10::Error where `work` synchronises, or does what a capture
/// does not allow, and what `work` throws; the device can be used as before then.
class CapturedCall {
 public:
  explicit CapturedCall(const std::function<void()>& work);

  /// Enqueues the captured work on the current stream.
  void replay() { graph_.replay(); }
  const Launches& launches() const { return launches_; }

 private:
  at::cuda::CUDAGraph graph_{/*keep_graph=*/true};
  Launches launches_;
};

}  // namespace suites
