#include "harness/change_gate/ci_status.h"
#include "harness/evidence/storage/files.h"
#include "harness/phases/builtin_phases.h"

namespace harness {
namespace {

std::string detail_of(const CiStatus& status, const std::string& file) {
  const auto count = [](int64_t number) { return std::to_string(number); };
  std::string text = count(status.tests) + " tests in " + file;
  if (status.failed > 0) text += ", failed first: " + status.first_failed;
  if (status.skipped > 0) text += "; " + count(status.skipped) + " did not run";
  if (status.flaky > 0)
    text += "; " + count(status.flaky) +
            " flaky, passed after a failed attempt, first: " + status.first_flaky;
  if (!status.remark.empty()) text += "; the file " + status.remark;
  return text;
}

}  // namespace

void run_ci_status(const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const auto args = base::protocol::merged_args(call.in, call.in.cases.front());
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
  count("tests.flaky_count", status.flaky);
  emitter.check({.case_id = id,
                 .id = "ci/tests",
                 .ok = status.failed == 0,
                 .code = status.failed == 0 ? "" : "CI_FAILED",
                 .detail = detail_of(status, file)});
  emitter.end_case(id);
}

}  // namespace harness
