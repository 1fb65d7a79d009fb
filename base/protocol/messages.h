#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/protocol/json.h"

/// The lines a worker writes, one struct for each type. Emitter and reader use the same
/// description. `reason` explains why a number is null; the emitter fills it when it refuses a
/// number that is not finite.
namespace base::protocol {

/// A switch as the worker sees it. origin: default | config | environment | command line
struct SwitchValue {
  std::string name = "", value = "", origin = "";
  template <class V>
  static void describe(V& v) {
    v({.name = "name", .doc = "switch", .required = true}, &SwitchValue::name);
    v({.name = "value", .doc = "effective value", .required = true}, &SwitchValue::value);
    v({.name = "origin", .doc = "where it comes from", .required = true}, &SwitchValue::origin);
  }
};

struct Hello {
  static constexpr std::string_view kType = "hello";
  int64_t v = 1;
  std::string program = "", build_id = "";
  int64_t pid = 0;  ///< filled in by the emitter
  int64_t rank = 0, world = 1;
  std::string device = "cpu";
  std::map<std::string, std::string> versions = {};
  std::vector<SwitchValue> switches = {};
  template <class V>
  static void describe(V& visit) {
    visit({.name = "v", .doc = "protocol version, 1", .required = true}, &Hello::v);
    visit({.name = "program", .doc = "name of the worker", .required = true}, &Hello::program);
    visit({.name = "build_id", .doc = "of the program", .required = true}, &Hello::build_id);
    visit({.name = "pid", .doc = "process id", .required = true}, &Hello::pid);
    visit({.name = "rank", .doc = "rank of this process", .required = true}, &Hello::rank);
    visit({.name = "world", .doc = "number of ranks", .required = true}, &Hello::world);
    visit({.name = "device", .doc = "cpu or cuda device name", .required = true}, &Hello::device);
    visit({.name = "versions", .doc = "library -> version"}, &Hello::versions);
    visit({.name = "switches", .doc = "effective switches with origin"}, &Hello::switches);
  }
};

/// Beat::at of a completed step, and of one that a process before this one completed, which a
/// resumed run repeats from its checkpoint: no progress of its own.
inline constexpr std::string_view kStep = "step", kEarlierStep = "earlier step";

struct Beat {
  static constexpr std::string_view kType = "beat";
  std::string case_id = "";
  int64_t step = 0, of = 0;  ///< of: steps in all; 0 when unknown
  std::string at = "";       ///< load | forward | backward | optimizer | collective | ...
  std::optional<double> rate = {};
  std::string rate_unit = "";
  std::optional<double> mem_mib = {};
  nlohmann::json extra = nlohmann::json::object();
  std::string reason = "";
  template <class V>
  static void describe(V& v) {
    v({.name = "case", .doc = "case at work"}, &Beat::case_id);
    v({.name = "step", .doc = "completed steps", .required = true}, &Beat::step);
    v({.name = "of", .doc = "steps in all; 0: unknown", .required = true}, &Beat::of);
    v({.name = "at", .doc = "mark inside a step"}, &Beat::at);
    v({.name = "rate", .doc = "measured rate"}, &Beat::rate);
    v({.name = "rate_unit", .doc = "unit of the rate"}, &Beat::rate_unit);
    v({.name = "mem_mib", .doc = "memory in use", .unit = "mib"}, &Beat::mem_mib);
    v({.name = "extra", .doc = "further fields of the worker"}, &Beat::extra);
    v({.name = "reason", .doc = "why a number is null"}, &Beat::reason);
  }
};

struct Check {
  static constexpr std::string_view kType = "check";
  std::string case_id = "", id = "";
  bool ok = false;
  std::string code = "", detail = "";
  std::optional<double> err = {}, tol = {};
  std::string reason = "";
  template <class V>
  static void describe(V& v) {
    v({.name = "case", .doc = "case it belongs to"}, &Check::case_id);
    v({.name = "id", .doc = "what was checked", .required = true}, &Check::id);
    v({.name = "ok", .doc = "it holds", .required = true}, &Check::ok);
    v({.name = "code", .doc = "failure code, e.g. ORACLE_MISMATCH"}, &Check::code);
    v({.name = "detail", .doc = "what was seen"}, &Check::detail);
    v({.name = "err", .doc = "measured error"}, &Check::err);
    v({.name = "tol", .doc = "tolerance"}, &Check::tol);
    v({.name = "reason", .doc = "why a number is null"}, &Check::reason);
  }
};

struct Sample {
  static constexpr std::string_view kType = "sample";
  std::string case_id = "", series = "";
  std::optional<double> value = {};  ///< null only when it was not finite, with a `reason`
  std::string unit = "";
  int64_t round = 0, order = 0;
  std::optional<double> clock_mhz = {};
  std::string throttle = "";           ///< none, or what holds the clock down, comma between
  std::optional<double> ran_pct = {};  ///< share of the time in which the calling thread ran
  std::string reason = "";
  template <class V>
  static void describe(V& v) {
    v({.name = "case", .doc = "case it belongs to", .required = true}, &Sample::case_id);
    v({.name = "series", .doc = "what was measured", .required = true}, &Sample::series);
    v({.name = "value", .doc = "the sample", .required = true}, &Sample::value);
    v({.name = "unit", .doc = "unit of the sample", .required = true}, &Sample::unit);
    v({.name = "round", .doc = "round of the schedule", .required = true}, &Sample::round);
    v({.name = "order", .doc = "position in the round", .required = true}, &Sample::order);
    v({.name = "clock_mhz", .doc = "device clock; null without a GPU"}, &Sample::clock_mhz);
    v({.name = "throttle", .doc = "none, or what holds the device clock down; empty: not known"},
      &Sample::throttle);
    v({.name = "ran_pct", .doc = "on a CPU: share of the time in which the calling thread ran"},
      &Sample::ran_pct);
    v({.name = "reason", .doc = "why the value is null"}, &Sample::reason);
  }
};

struct Metric {
  static constexpr std::string_view kType = "metric";
  std::string case_id = "", name = "";  ///< name: without the phase
  nlohmann::json value = nullptr;       ///< number, bool or null
  std::string unit = "", reason = "";
  template <class V>
  static void describe(V& v) {
    v({.name = "case", .doc = "case it belongs to"}, &Metric::case_id);
    v({.name = "name", .doc = "metric without the phase", .required = true}, &Metric::name);
    v({.name = "value", .doc = "number, bool or null", .required = true}, &Metric::value);
    v({.name = "unit", .doc = "unit of the figure", .required = true}, &Metric::unit);
    v({.name = "reason", .doc = "why the value is null"}, &Metric::reason);
  }
};

struct Table {
  static constexpr std::string_view kType = "table";
  std::string case_id = "", id = "", title = "";
  std::vector<std::string> columns = {};
  nlohmann::json rows = nlohmann::json::array();  ///< list of lists, as long as columns
  std::string reason = "";
  template <class V>
  static void describe(V& v) {
    v({.name = "case", .doc = "case it belongs to"}, &Table::case_id);
    v({.name = "id", .doc = "name of the table", .required = true}, &Table::id);
    v({.name = "title", .doc = "what it shows"}, &Table::title);
    v({.name = "columns", .doc = "column names with units", .required = true}, &Table::columns);
    v({.name = "rows", .doc = "rows of cells", .required = true}, &Table::rows);
    v({.name = "reason", .doc = "why a cell is null"}, &Table::reason);
  }
};

struct Finding {
  static constexpr std::string_view kType = "finding";
  std::string code = "", symptom = "", fact = "", cause = "", action = "";
  std::string priority = "follow-up";  ///< immediate | follow-up
  template <class V>
  static void describe(V& v) {
    v({.name = "code", .doc = "failure code", .required = true}, &Finding::code);
    v({.name = "symptom", .doc = "what was seen", .required = true}, &Finding::symptom);
    v({.name = "fact", .doc = "what shows it"}, &Finding::fact);
    v({.name = "cause", .doc = "why it happens"}, &Finding::cause);
    v({.name = "action", .doc = "what to do next"}, &Finding::action);
    v({.name = "priority", .doc = "immediate or follow-up"}, &Finding::priority);
  }
};

struct Artifact {
  static constexpr std::string_view kType = "artifact";
  std::string path = "", media = "";
  template <class V>
  static void describe(V& v) {
    v({.name = "path", .doc = "relative to `out`", .required = true}, &Artifact::path);
    v({.name = "media", .doc = "media type"}, &Artifact::media);
  }
};

struct CaseEnd {
  static constexpr std::string_view kType = "case";
  std::string case_id = "", status = "ok",
              reason = "";  ///< status: ok | failed | deferred | partial
  template <class V>
  static void describe(V& v) {
    v({.name = "case", .doc = "case that ended", .required = true}, &CaseEnd::case_id);
    v({.name = "status", .doc = "ok, failed, deferred or partial", .required = true},
      &CaseEnd::status);
    v({.name = "reason", .doc = "why it is not ok"}, &CaseEnd::reason);
  }
};

struct Done {
  static constexpr std::string_view kType = "done";
  int64_t lines = 0;
  template <class V>
  static void describe(V& v) {
    v({.name = "lines", .doc = "lines before this one", .required = true}, &Done::lines);
  }
};

using Message =
    std::variant<Hello, Beat, Check, Sample, Metric, Table, Finding, Artifact, CaseEnd, Done>;

}  // namespace base::protocol
