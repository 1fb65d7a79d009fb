#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/runbook/load.h"
#include "harness/runbook/runbook.h"

/// The plan of a run: what will run in which order, in which processes, with which seeds and
/// arguments, what this machine cannot run and why, and which criteria it can decide. Written to
/// plan.json before anything starts; the engine and `derive` read nothing else about intentions.
namespace harness {

/// What is known of the machine: fact name -> number, string or bool. A fact that is absent is
/// unknown, which meets no requirement. Numbers: gpu.count, gpu.cc, gpu.free_mib.
/// Texts: gpu.sku, ci.status. Bools: gpu.exclusive, cupti.ok, git.checkout, data.NAME,
/// program.NAME, baseline.ok (a usable baseline of this runbook and hardware).
using Facts = std::map<std::string, nlohmann::json>;

enum class Decision { kRun, kRunWithDeviation, kDefer, kFail, kSkip };
template <>
struct EnumNames<Decision> {
  static constexpr auto names = std::to_array<std::pair<Decision, std::string_view>>(
      {{Decision::kRun, "run"},
       {Decision::kRunWithDeviation, "run_with_deviation"},
       {Decision::kDefer, "defer"},
       {Decision::kFail, "fail"},
       {Decision::kSkip, "skip"}});
};

/// Causes a plan gives to phases that do not run. Beside these and kCauseSkipped, the cause of a
/// fact that does not hold: GPU_COUNT, GPU_SKU_MISMATCH, GPU_CC (hardware is missing),
/// GPU_NOT_FREE, CUPTI_UNAVAILABLE, DATA_MISSING, NO_CHECKOUT, CI_STATUS, PROGRAM_MISSING,
/// BASELINE_INVALID.
inline constexpr std::string_view kCauseUpstream =
    "UPSTREAM";  ///< NOT_RUN: a phase it needs does not run
/// NOT_RUN, known only during the run: a criterion it needs is not PASS.
inline constexpr std::string_view kCauseCriteria = "CRITERIA";

struct PlannedCase {
  std::string id;
  nlohmann::json args = nlohmann::json::object();
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "unique in the phase", .required = true}, &PlannedCase::id);
    v({.name = "args", .doc = "the case's own arguments, over those of the phase"},
      &PlannedCase::args);
  }
};

/// One process. It runs all cases of its phase.
struct PlannedGroup {
  std::string id;    ///< g01, g02, ...
  int64_t seed = 0;  ///< group_seed(runbook seed, phase, group)
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "g01, g02, ...", .required = true}, &PlannedGroup::id);
    v({.name = "seed", .doc = "seed of this process", .required = true}, &PlannedGroup::seed);
  }
};

/// Processes that run only when the evidence before them asks for it: a further look at an
/// undecided A/B, or the confirmation of a failed one.
struct PlannedStage {
  std::string id;  ///< look2, look3, ...; confirm
  std::vector<PlannedGroup> groups;
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "look2, look3, ... or confirm", .required = true}, &PlannedStage::id);
    v({.name = "groups", .doc = "processes, in the order they run", .required = true},
      &PlannedStage::groups);
  }
};
inline constexpr std::string_view kConfirmStage = "confirm";

struct PlannedPhase {
  std::string id;
  std::string title;
  std::string run;      ///< as in the runbook, e.g. "nsa-tests:Oracle*"
  std::string program;  ///< builtin | nsa-worker | nsa-tests | nsa-bench | nsa-train
  std::string kind;     ///< key of kinds.json; "kind" of the protocol
  std::string filter;   ///< nsa-tests and nsa-bench: text behind the colon; else empty
  std::string mode;     ///< check | time | profile | trace
  std::string device;   ///< cpu | cuda
  nlohmann::json args = nlohmann::json::object();  ///< every declared argument, defaults filled in
  std::vector<PlannedCase> cases;
  std::vector<PlannedGroup> groups;
  std::vector<PlannedStage> further =
      {};  ///< in this order; see harness/evidence/derive/ab_stages.h
  std::vector<std::string> needs;
  std::vector<std::string> needs_criteria;
  std::string launcher = "engine";
  Required required = Required::kAlways;
  double timeout_s = 600;
  int64_t retries = 0;
  std::vector<std::string> artifacts;
  std::map<std::string, std::string> switches;
  Decision decision = Decision::kRun;
  std::string cause;  ///< empty when it runs
  std::string
      reason;  ///< why it does not run as written, and what would make it run; empty when it does
  double minutes = 0;                  ///< expected wall time of `groups`; 0 when it does not run
  std::vector<std::string> decides;    ///< criteria (C-...) this machine can decide
  std::vector<std::string> undecided;  ///< criteria it cannot decide: NOT_EVALUATED
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "phase id of the runbook", .required = true}, &PlannedPhase::id);
    v({.name = "title", .doc = "what the phase shows, in words"}, &PlannedPhase::title);
    v({.name = "run", .doc = "as in the runbook", .required = true}, &PlannedPhase::run);
    v({.name = "program",
       .doc = "builtin, nsa-worker, nsa-tests, nsa-bench or nsa-train",
       .required = true},
      &PlannedPhase::program);
    v({.name = "kind", .doc = "phase kind", .required = true}, &PlannedPhase::kind);
    v({.name = "filter", .doc = "test or benchmark filter; empty elsewhere"},
      &PlannedPhase::filter);
    v({.name = "mode", .doc = "check, time, profile or trace", .required = true},
      &PlannedPhase::mode);
    v({.name = "device", .doc = "cpu or cuda", .required = true}, &PlannedPhase::device);
    v({.name = "args", .doc = "every declared argument, defaults filled in"}, &PlannedPhase::args);
    v({.name = "cases", .doc = "cases every process runs", .required = true}, &PlannedPhase::cases);
    v({.name = "groups", .doc = "processes", .required = true}, &PlannedPhase::groups);
    v({.name = "further", .doc = "processes that run only if the evidence before asks for them"},
      &PlannedPhase::further);
    v({.name = "needs", .doc = "phases that must be COMPLETED before"}, &PlannedPhase::needs);
    v({.name = "needs_criteria", .doc = "criteria of other phases that must PASS before"},
      &PlannedPhase::needs_criteria);
    v({.name = "launcher", .doc = "what starts the ranks: engine or srun"},
      &PlannedPhase::launcher);
    v({.name = "required", .doc = "always, if_hardware, by_size or no"}, &PlannedPhase::required);
    v({.name = "timeout_s", .doc = "wall time limit of one process", .unit = "s"},
      &PlannedPhase::timeout_s);
    v({.name = "retries", .doc = "further attempts after infrastructure faults", .unit = "count"},
      &PlannedPhase::retries);
    v({.name = "artifacts", .doc = "files the phase must leave"}, &PlannedPhase::artifacts);
    v({.name = "switches", .doc = "NSA_* switches set for this phase"}, &PlannedPhase::switches);
    v({.name = "decision", .doc = "run, run_with_deviation, defer, fail or skip", .required = true},
      &PlannedPhase::decision);
    v({.name = "cause", .doc = "cause from the closed list; empty when it runs"},
      &PlannedPhase::cause);
    v({.name = "reason", .doc = "why it does not run as written, and what would make it run"},
      &PlannedPhase::reason);
    v({.name = "minutes", .doc = "expected wall time of groups"}, &PlannedPhase::minutes);
    v({.name = "decides", .doc = "criteria this machine can decide"}, &PlannedPhase::decides);
    v({.name = "undecided", .doc = "criteria this machine cannot decide"},
      &PlannedPhase::undecided);
  }
};

struct Plan {
  std::string schema = "nsa-plan/1";
  std::string runbook;
  std::string device;
  int64_t seed = 0;
  nlohmann::json facts = nlohmann::json::object();  ///< the facts it was made from
  std::vector<PlannedPhase> phases;                 ///< in the order they run
  std::vector<Deviation> deviations;                ///< known before the start
  std::vector<std::string> added = {};              ///< phases that those of --only need
  double minutes = 0;
  template <class V>
  static void describe(V& v) {
    v({.name = "schema", .doc = "nsa-plan/1", .required = true}, &Plan::schema);
    v({.name = "runbook", .doc = "name", .required = true}, &Plan::runbook);
    v({.name = "device", .doc = "cpu or cuda", .required = true}, &Plan::device);
    v({.name = "seed", .doc = "runbook seed", .required = true}, &Plan::seed);
    v({.name = "facts", .doc = "facts of the machine it was made from"}, &Plan::facts);
    v({.name = "phases", .doc = "phases in the order they run", .required = true}, &Plan::phases);
    v({.name = "deviations", .doc = "differences from the runbook known before the start"},
      &Plan::deviations);
    v({.name = "added", .doc = "phases that run because those of --only need them"}, &Plan::added);
    v({.name = "minutes", .doc = "expected wall time"}, &Plan::minutes);
  }
};

/// Which phases the command line asked for. Both empty: all.
struct PhaseSelection {
  std::vector<std::string> only;        ///< these and what they need, transitively
  std::vector<std::string> skip;        ///< all but these and what needs them
  std::vector<std::string> added = {};  ///< what those of `only` need; make_plan fills it in
};

/// Decides for every phase of `book` whether and how this machine runs it. Pure. Throws ConfigError
/// for an unknown phase in `selection` (with the nearest name) and for a selection that leaves
/// nothing to run.
Plan make_plan(const LoadedRunbook& book, const Facts& facts, const PhaseSelection& selection = {});

/// Seed of one process: (splitmix64 of (runbook seed + FNV-1a-64 of "PHASE/GROUP")) modulo 2^53, so
/// that JSON numbers of any reader hold it exactly.
int64_t group_seed(int64_t runbook_seed, const std::string& phase, const std::string& group);

}  // namespace harness
