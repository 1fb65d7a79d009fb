// What the device reaches at its best: copies and matrix products, for doctor and preflight.
#include "suites/instrument/ceilings.h"

#include "suites/phases/phase.h"

namespace suites {

std::string run_ceilings(const PhaseCase& one) {
  const auto type = one.device.is_cpu() ? c10::ScalarType::Float : c10::ScalarType::BFloat16;
  const harness::trace::Ceilings found = measure_ceilings(one.device, type);
  one.emitter.metric({.case_id = one.id, .name = "copy_gb_s", .value = found.gb_s, .unit = "gb_s"});
  one.emitter.metric(
      {.case_id = one.id, .name = "matmul_tflop_s", .value = found.tflop_s, .unit = "tflop_s"});
  return "";
}

}  // namespace suites
