#include "harness/process/failure_cause.h"

#include "harness/evidence/storage/files.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace {

constexpr int kUsageExit = 2;  ///< of a worker that refuses its case line or a switch
constexpr size_t kMostWords = 300;

}  // namespace

std::string last_words(const std::filesystem::path& log) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(log, error)) return "";  // a worker may remove anything
  const std::string text = read_bytes(log);
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const size_t before = text.rfind('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return printable(std::string_view(text).substr(begin, end + 1 - begin), kMostWords);
}

FailureCause cause_of_exit(const GroupOutcome& ended, const std::filesystem::path& err,
                           const std::string& progress) {
  // Nothing in a worker sends KILL: it comes from outside, mostly from a machine out of memory.
  if (!ended.signal.empty())
    return {"SIGNAL", "ended by " + ended.signal + "; " + progress, ended.signal == "SIGKILL"};
  if (ended.exit_code == 0) return {};
  const std::string words = last_words(err);
  const bool refused =
      ended.exit_code == kUsageExit && words.find("CONFIG_ERROR") != std::string::npos;
  return {refused ? "CONFIG_ERROR" : "EXIT_CODE",
          "exit status " + std::to_string(ended.exit_code) + ", want 0; " +
              (words.empty() ? "it printed nothing" : "its last words: " + words) + "; see " +
              err.filename().string()};
}

FailureCause cause_of_violations(const std::vector<base::protocol::Violation>& violations) {
  if (violations.empty()) return {};
  const auto& first = violations.front();
  const auto where = first.line > 0 ? "line " + std::to_string(first.line) + ": " : "";
  const auto more =
      violations.size() > 1 ? " (and " + std::to_string(violations.size() - 1) + " more)" : "";
  // Without `done` the rest is a consequence, unless the lines themselves are wrong.
  const bool cut = violations.back().name == "NO_DONE" && first.line == 0;
  return {cut ? "NO_DONE" : first.name,
          where + first.detail + more + (cut ? "; exit status 0 without `done`" : "")};
}

}  // namespace harness
