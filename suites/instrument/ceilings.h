#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "harness/trace/analysis/roofline.h"

namespace suites {

/// What this machine reaches: the best of a few square matrix products of `type` and of a few
/// copies in device memory (bytes read and written). About a second on a GPU; small sizes on a CPU.
harness::trace::Ceilings measure_ceilings(at::Device device, at::ScalarType type);

}  // namespace suites
