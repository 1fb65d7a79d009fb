#include "suites/conformance/checks/check.h"

#include <c10/util/Exception.h>

namespace suites {

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Double:
      return "fp64";
    case at::ScalarType::Float:
      return "fp32";
    case at::ScalarType::BFloat16:
      return "bf16";
    case at::ScalarType::Half:
      return "fp16";
    default:
      TORCH_CHECK(false, "suites::dtype_name: type must be fp64, fp32, bf16 or fp16, got ", type);
  }
}

at::ScalarType parse_dtype(const std::string& name) {
  if (name == "fp64") return at::ScalarType::Double;
  if (name == "fp32") return at::ScalarType::Float;
  if (name == "bf16") return at::ScalarType::BFloat16;
  if (name == "fp16") return at::ScalarType::Half;
  TORCH_CHECK(false, "suites::parse_dtype: dtype must be fp64, fp32, bf16 or fp16, got '", name,
              "'");
}

}  // namespace suites
