#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/process/progress_clock.h"
#include "harness/results/results.h"

namespace harness {

/// A shared library that a process had mapped.
struct LoadedLibrary {
  std::string name;    ///< of the file
  std::string sha256;  ///< of its content; empty: it was gone when the process ended
  bool operator==(const LoadedLibrary&) const = default;
  template <class V>
  static void describe(V& v) {
    v({.name = "name", .doc = "file name", .required = true}, &LoadedLibrary::name);
    v({.name = "sha256", .doc = "of its content", .required = true}, &LoadedLibrary::sha256);
  }
};

/// Causes of a group that did not complete. From the watch: EXIT_CODE, CONFIG_ERROR
/// (it refused its case line or a switch), SIGNAL, OOM, HANG, TIMEOUT,
/// NOT_STARTED, DISK_FULL, INTERRUPTED. From the result channel (base/protocol/lines.h):
/// NO_HELLO, HELLO_TWICE, GARBAGE, NON_FINITE, BAD_TIME, FOREIGN_CASE, DUPLICATE_CASE,
/// DUPLICATE_CHECK, DUPLICATE_SAMPLE, MISSING_CASE, BAD_MODE, AFTER_DONE, BAD_COUNT, NO_DONE,
/// NO_BUILD_ID. From ingestion: NO_TESTS, BAD_TEST_COUNT, BAD_TEST_JSON. From the engine:
/// BUILTIN_ERROR, MISSING_ARTIFACT, OTHER_PROGRAM, NO_CONTRAST (arms that do not differ), and those
/// of a plan (REQUIREMENT, SKIPPED, UPSTREAM, CRITERIA).
struct GroupOutcome {
  std::string group;  ///< g01, g02, ...
  StepStatus status = StepStatus::kFailed;
  std::string cause;   ///< empty when COMPLETED
  std::string reason;  ///< one sentence with what was seen
  double seconds = 0;
  int64_t exit_code = -1;  ///< -1: it did not exit by itself
  std::string signal;      ///< name of the signal that ended it
  int64_t lines = 0;       ///< well-formed lines on the result channel
  int64_t half_line_bytes = 0;
  bool infrastructure = false;     ///< the machine's fault, not the product's: may be retried
  std::optional<SlowRecord> slow;  ///< progress under the floor
  int64_t orphans_killed = 0;      ///< processes it left behind
  std::vector<std::string>
      left;  ///< processes of the group that survived KILL; empty is the proof that none did
  std::vector<std::string>
      fallbacks;  ///< means of the machine that were missing, and what was used instead
  std::vector<std::string> notes;  ///< cut logs and the like
  std::vector<LoadedLibrary>
      libraries;        ///< of the product and of LibTorch, as the engine saw them mapped
  std::string autopsy;  ///< file name of the autopsy, beside the evidence
  nlohmann::json last_beat = nlohmann::json();
  template <class V>
  static void describe(V& v) {
    v({.name = "group", .doc = "process of the phase", .required = true}, &GroupOutcome::group);
    v({.name = "status", .doc = "COMPLETED or FAILED", .required = true}, &GroupOutcome::status);
    v({.name = "cause", .doc = "cause from the closed list; empty when COMPLETED"},
      &GroupOutcome::cause);
    v({.name = "reason", .doc = "what was seen, in one sentence"}, &GroupOutcome::reason);
    v({.name = "seconds", .doc = "wall time", .unit = "s"}, &GroupOutcome::seconds);
    v({.name = "exit_code", .doc = "exit status; -1: ended by a signal"}, &GroupOutcome::exit_code);
    v({.name = "signal", .doc = "signal that ended it"}, &GroupOutcome::signal);
    v({.name = "lines", .doc = "lines on the result channel", .unit = "count"},
      &GroupOutcome::lines);
    v({.name = "half_line_bytes", .doc = "bytes of a last line that was cut"},
      &GroupOutcome::half_line_bytes);
    v({.name = "infrastructure", .doc = "a fault of the machine, which may be retried"},
      &GroupOutcome::infrastructure);
    v({.name = "slow", .doc = "measured rate under the floor"}, &GroupOutcome::slow);
    v({.name = "orphans_killed", .doc = "processes it left behind", .unit = "count"},
      &GroupOutcome::orphans_killed);
    v({.name = "left", .doc = "processes that survived KILL"}, &GroupOutcome::left);
    v({.name = "fallbacks", .doc = "missing means and what was used instead"},
      &GroupOutcome::fallbacks);
    v({.name = "notes", .doc = "what else was seen"}, &GroupOutcome::notes);
    v({.name = "libraries", .doc = "libraries of the product and of LibTorch that were mapped"},
      &GroupOutcome::libraries);
    v({.name = "autopsy", .doc = "file with the autopsy of a stall"}, &GroupOutcome::autopsy);
    v({.name = "last_beat", .doc = "last heartbeat before a stall"}, &GroupOutcome::last_beat);
  }
};

}  // namespace harness
