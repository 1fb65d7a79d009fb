#include "harness/phases/worker_call.h"

#include "base/protocol/case.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"

namespace harness {

WorkerAnswer call_worker(const WorkerCall& call) {
  const TempDir dir;
  const auto result_file = dir / "result.jsonl";
  base::protocol::CaseIn in;
  in.phase = "selftest";
  in.kind = call.kind;
  in.group = "g01";
  in.device = call.device;
  in.mode = call.mode;
  in.seed = call.seed;
  in.args = call.args;
  in.cases = {{.id = "injected", .args = nlohmann::json::object()}};
  in.out = dir.path().string();
  CaptureOptions options;
  options.input = base::protocol::print_case(in) + "\n";
  options.timeout_s = call.timeout_s;
  options.with_stderr = true;
  options.whole_tree = true;
  options.without_prefix = "NSA_";
  options.env = call.env;
  std::vector<std::string> argv = {call.program.string()};
  argv.insert(argv.end(), call.flags.begin(), call.flags.end());
  argv.insert(argv.end(), {"--result", result_file.string()});
  const Captured captured = capture(argv, options);
  WorkerAnswer answer;
  answer.exit = captured.exit;
  answer.log = captured.out;
  answer.problem = captured.problem;
  const std::string raw = std::filesystem::exists(result_file) ? read_bytes(result_file) : "";
  answer.reported_anything = !raw.empty();
  answer.transcript = base::protocol::read_transcript(raw, {call.mode, {"injected"}});
  if (answer.problem.empty() && !answer.transcript.violations.empty()) {
    const auto& first = answer.transcript.violations.front();
    answer.problem =
        "exit status " + std::to_string(captured.exit) + ", " + first.name + ": " + first.detail;
  }
  return answer;
}

std::vector<base::protocol::Check> WorkerAnswer::checks() const {
  std::vector<base::protocol::Check> found;
  for (const auto& line : transcript.lines)
    if (const auto* check = std::get_if<base::protocol::Check>(&line.message))
      found.push_back(*check);
  return found;
}

std::vector<base::protocol::Check> WorkerAnswer::failed_checks() const {
  std::vector<base::protocol::Check> failed = checks();
  std::erase_if(failed, [](const base::protocol::Check& check) { return check.ok; });
  return failed;
}

}  // namespace harness
