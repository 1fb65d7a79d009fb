#include "nsa/decode/step/graph_capture.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGraphsC10Utils.h>
#endif

namespace nsa {

bool is_capturing() {
#ifdef NSA_WITH_CUDA
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
#else
  return false;
#endif
}

}  // namespace nsa
