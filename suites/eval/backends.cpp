#include "suites/eval/backends.h"

#include "nsa/model/input_error.h"

namespace suites::eval {

using nsa::RangesVersion;

nsa::SwitchSet eval_switches(const std::string&) {
  nsa::SwitchSet switches = nsa::SwitchSet::from_environment();
  switches.require_honoured("nsa-eval",
                            {"NSA_SEL_RANGES_V2", "NSA_FORCE_PARITY", "NSA_NVTX", "NSA_CASES_DIR"});
  return switches;
}

nsa::NsaOptions backends_for(const std::string& op, const std::string& backend,
                             const nsa::SwitchSet& switches) {
  nsa::NsaOptions options = nsa::NsaOptions::from(switches);
  if (backend.empty() || backend == "gather") return options;
  for (const RangesVersion version :
       {RangesVersion::kV1, RangesVersion::kV1Bulk, RangesVersion::kV2})
    if (backend == to_string(version)) {
      options.ranges = version;
      return options;
    }
  throw nsa::InputError("--backend " + backend + ": --op " + op + " has none of this name");
}

}  // namespace suites::eval
