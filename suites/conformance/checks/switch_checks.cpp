// Switches are honoured or refused by name; declared in invariant_checks.h.
#include <functional>

#include "suites/conformance/checks/invariant_checks.h"

namespace suites {
namespace {

/// The text of the std::invalid_argument that `call` throws, or "accepted".
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

Checks check_switches(const Candidate& candidate, const OperatorCase& one) {
  const auto line = [&](const char* what, const std::string& got, const std::string& wanted) {
    return make_check(
        std::string("invariant/switches/") + dtype_name(one.type) + "/" + what + "/" + one.name,
        got.find(wanted) != std::string::npos, code::kConfigError,
        "must contain '" + wanted + "', got '" + got + "'");
  };
  const std::string unknown = refusal([&] { candidate.switches({{"NSA_SEL_RANGE_V2", "0"}}); });
  const std::string ignored = refusal([&] {
    candidate.switches({{"NSA_NVTX", "0"}}).require_honoured("this path", {"NSA_SEL_RANGES_V2"});
  });
  return {line("unknown", unknown, "nearest known name is NSA_SEL_RANGES_V2"),
          line("ignored", ignored, "NSA_NVTX=0 (environment) is ignored by this path")};
}

}  // namespace suites
