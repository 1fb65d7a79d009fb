#include "harness/change_gate/ci_status.h"
#include "harness/evidence/storage/files.h"
#include "harness/phases/builtin_phases.h"

namespace harness {

void run_ci_status(const BuiltinCall& call, protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const auto args = protocol::merged_args(call.in, call.in.cases.front());
  const std::string file = args.value("file", "");
  if (file.empty()) return emitter.fail_case(id, "no file is given; use --ci-status FILE");
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    return emitter.fail_case(id, "CI status " + file + " is not there");
  const CiStatus status = read_junit(read_bytes(file));
  if (!status.problem.empty())
    return emitter.fail_case(id, "CI status " + file + " " + status.problem);
  const auto count = [&](const char* name, int64_t value) {
    emitter.metric({.case_id = id, .name = name, .value = value, .unit = "count"});
  };
  count("tests.run_count", status.tests - status.skipped);
  count("tests.failed_count", status.failed);
  count("tests.skipped_count", status.skipped);
  emitter.check({.case_id = id,
                 .id = "ci/tests",
                 .ok = status.failed == 0,
                 .code = status.failed == 0 ? "" : "CI_FAILED",
                 .detail = std::to_string(status.tests) + " tests in " + file +
                           (status.failed == 0 ? "" : ", failed first: " + status.first_failed)});
  emitter.end_case(id);
}

}  // namespace harness
