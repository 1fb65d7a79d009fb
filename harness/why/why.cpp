#include "harness/why/why.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/evidence/error.h"
#include "harness/evidence/storage/gzip.h"
#include "harness/evidence/storage/run_files.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"
#include "harness/stats/order_statistics.h"
#include "harness/trace/trace_file.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr std::string_view kTraceSuffix = ".trace.jsonl", kGzip = ".gz";

/// The phase of a trace's path, phases/PHASE/out/CASE.trace.jsonl; empty for any other file.
std::string phase_of(const std::string& path) {
  const std::string begin = "phases/";
  if (!path.starts_with(begin) || !path.ends_with(kTraceSuffix)) return "";
  return path.substr(begin.size(), path.find('/', begin.size()) - begin.size());
}

/// Names without .gz, which traces of older runs have.
std::set<std::string> traces_of(const RunFolder& run) {
  std::set<std::string> traces;
  for (const std::string& path : run.paths()) {
    const std::string name =
        path.ends_with(kGzip) ? path.substr(0, path.size() - kGzip.size()) : path;
    if (!phase_of(name).empty()) traces.insert(name);
  }
  return traces;
}

/// Phases of the runbook that record a profile, whether they ran or not.
std::set<std::string> profiling_phases(const Results& results) {
  const std::string figure = ".profile.steps_count";
  std::set<std::string> phases;
  for (const Metric& metric : results.metrics)
    if (metric.name.ends_with(figure)) phases.insert(metric.phase);
  return phases;
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

[[noreturn]] void refuse_missing(const Results& a, const Results& b, const std::string& phase) {
  std::set<std::string> record = profiling_phases(a);
  record.merge(profiling_phases(b));
  const std::string asked = phase.empty() ? "" : " of phase '" + phase + "'";
  if (record.empty())
    throw ConfigError("why: not decidable: no profile" + asked +
                      " is in both runs, and no phase of " + a.run.runbook +
                      " records one; single_gpu has such a phase (hotspots)");
  throw ConfigError("why: not decidable: no profile" + asked +
                    " is in both runs; record one in each: nsa-validate --runbook " +
                    a.run.runbook + " --only " + *record.begin() +
                    " (phases that record: " + joined(record) + ")");
}

json args_of(const RunFiles& files, const std::string& phase) {
  const auto& phases = files.runbook.phases;
  const auto found = std::ranges::find(phases, phase, &PhaseSpec::id);
  return found == phases.end() ? json::object() : found->args;
}

/// Each rank has the same rows: its step is that of one process, and what ranks cost beside it.
constexpr const char* kRanks = "ranks";

std::string ranks_note(const RunFolder& a, const RunFolder& b, const std::string& phase) {
  const json x = args_of(read_run_files(a), phase).value(kRanks, json(1)),
             y = args_of(read_run_files(b), phase).value(kRanks, json(1));
  if (x == y) return "";
  return "ranks are " + x.dump() + " in A and " + y.dump() + " in B, the profiles those of rank 0";
}

/// Profiles of other work do not explain each other.
void require_same_arguments(const RunFolder& a, const RunFolder& b, const std::string& phase) {
  const json of_a = args_of(read_run_files(a), phase), of_b = args_of(read_run_files(b), phase);
  std::set<std::string> keys;
  for (const json* each : {&of_a, &of_b})
    for (const auto& item : each->items()) keys.insert(item.key());
  for (const std::string& key : keys) {
    const json x = of_a.value(key, json()), y = of_b.value(key, json());
    if (x != y && key != kRanks)
      throw ConfigError("why: phase '" + phase + "' ran with " + key + " " + x.dump() +
                        " in A and " + y.dump() + " in B: their steps are not the same work");
  }
}

trace::StepParts parts_of(const RunFolder& run, const std::string& name) {
  const bool plain = run.has(name);
  const std::string path = plain ? name : name + std::string(kGzip);
  try {
    const std::string bytes = run.read(path);
    const trace::Trace trace = trace::read_trace(plain ? bytes : gunzip(bytes, path), path);
    return trace::step_parts(trace, trace::step_name(trace));
  } catch (const ConfigError&) {
    throw;
  } catch (const EvidenceError&) {
    throw;
  } catch (const Error& problem) {
    throw EvidenceError(path, problem.what());
  }
}

/// Steps with recording off: the table `dilation` of the phase, else its one figure.
std::optional<MeasuredStep> measured_step(const Results& results, const std::string& phase) {
  std::vector<double> off;
  for (const json& table : results.tables)
    if (table.value("id", "") == phase + ".dilation")
      for (const json& row : table.value("rows", json::array()))
        if (row.is_array() && row.size() > 1 && row[1].is_number()) off.push_back(row[1]);
  if (!off.empty()) {
    MeasuredStep step{.ms = stats::median(off), .lo = {}, .hi = {}, .n = off.size()};
    if (const auto bounds = stats::median_interval(off, stats::kVerdictLevel))
      step.lo = bounds->lo, step.hi = bounds->hi;
    return step;
  }
  for (const Metric& metric : results.metrics)
    if (metric.name == phase + ".step.unrecorded_ms" && metric.value)
      return MeasuredStep{.ms = metric.value.value_or(NAN), .lo = {}, .hi = {}, .n = 1};
  return std::nullopt;
}

/// Why the measured steps show no difference; empty where they do.
std::string no_difference(const std::optional<MeasuredStep>& a,
                          const std::optional<MeasuredStep>& b) {
  if (!a || !b)
    return std::string("no step of ") + (a ? "B" : "A") + " was measured with recording off";
  const double a_hi = a->hi.value_or(NAN), b_hi = b->hi.value_or(NAN);
  if (a->lo && b->lo && *a->lo <= b_hi && *b->lo <= a_hi)
    return "the intervals of the measured steps touch: no difference is shown";
  if (a->ms == b->ms) return "both steps take the same time";
  return "";
}

Explanation explain_one(const RunFolder& a, const Results& of_a, const RunFolder& b,
                        const Results& of_b, const std::string& path) {
  Explanation out;
  out.phase = phase_of(path);
  out.file = path;
  out.a = measured_step(of_a, out.phase);
  out.b = measured_step(of_b, out.phase);
  out.not_decidable = no_difference(out.a, out.b);
  const trace::StepParts parts_a = parts_of(a, path), parts_b = parts_of(b, path);
  try {
    out.recorded = step_difference(parts_a, parts_b);
  } catch (const Error& problem) {
    out.not_decidable = problem.what();
  }
  return out;
}

std::string ms_text(double ms) { return format_number(ms) + " ms"; }

std::string step_text(const MeasuredStep& step) {
  std::string text = ms_text(step.ms);
  if (step.lo && step.hi) text += " " + format_interval(*step.lo, *step.hi);
  return text;
}

std::string signed_ms(double ms) { return (ms < 0 ? "-" : "+") + ms_text(std::abs(ms)); }

json change_row(const PartChange& c, bool with_range) {
  json row = {c.name};
  if (with_range) row.push_back(c.range.empty() ? json(nullptr) : json(c.range));
  for (const double value : {c.a_count, c.b_count, c.a_ms, c.b_ms, c.delta_ms()})
    row.push_back(value);
  return row;
}

/// Clocks of an SM or a core that comparisons of the run recorded, MHz.
std::vector<double> clocks_of(const Results& results) {
  std::vector<double> clocks;
  for (const Metric& metric : results.metrics) {
    if (!metric.details.is_object()) continue;
    for (const json& sample : metric.details.value("samples", json::array()))
      if (sample.is_object() && sample.value("clock_mhz", json()).is_number())
        clocks.push_back(sample["clock_mhz"]);
  }
  return clocks;
}

std::string at_pointer(const Results& results, const char* pointer) {
  const json::json_pointer at(pointer);
  if (!results.environment.contains(at) || !results.environment.at(at).is_string()) return "–";
  return results.environment.at(at);
}

}  // namespace

std::optional<double> Explanation::measured_ms() const {
  if (!a || !b) return std::nullopt;
  return b->ms - a->ms;
}

std::optional<double> Explanation::unexplained_ms() const {
  const auto measured = measured_ms();
  if (!measured || recorded.parts.empty()) return std::nullopt;
  return *measured - recorded.delta_ms();
}

std::optional<double> Explanation::unexplained_pct() const {
  const auto measured = measured_ms(), left = unexplained_ms();
  if (!measured || !left || *measured == 0) return std::nullopt;
  return 100 * std::abs(*left / *measured);
}

std::vector<Explanation> explain_difference(const RunFolder& a, const Results& of_a,
                                            const RunFolder& b, const Results& of_b,
                                            const std::string& phase) {
  std::vector<Explanation> all;
  const std::set<std::string> traces_b = traces_of(b);
  for (const std::string& path : traces_of(a)) {
    if (!traces_b.contains(path) || (!phase.empty() && phase_of(path) != phase)) continue;
    require_same_arguments(a, b, phase_of(path));
    all.push_back(explain_one(a, of_a, b, of_b, path));
    all.back().note = ranks_note(a, b, phase_of(path));
  }
  if (all.empty()) refuse_missing(of_a, of_b, phase);
  return all;
}

std::string difference_text(const Explanation& e) {
  std::string text;
  if (e.a && e.b)
    text += "A step takes " + step_text(*e.a) + " in A and " + step_text(*e.b) + " in B (" +
            signed_ms(e.b->ms - e.a->ms) + "), measured with recording off. ";
  if (!e.note.empty()) text += "Note: " + e.note + ". ";
  if (!e.not_decidable.empty()) text += "Not decidable: " + e.not_decidable + ". ";
  if (e.recorded.parts.empty()) return text;
  text += "The profiles hold " + signed_ms(e.recorded.delta_ms()) + " (" +
          ms_text(e.recorded.a_ms) + " and " + ms_text(e.recorded.b_ms) + " a recorded step)";
  if (const auto left = e.unexplained_pct())
    text += "; " + format_number(*left, 3) + " % of the measured difference is left unexplained";
  const PartChange& largest = e.recorded.parts.front();
  text += ". Largest change: " + largest.name +
          (largest.range.empty() ? "" : " in " + largest.range) + ", " +
          signed_ms(largest.delta_ms()) + ".";
  return text;
}

std::vector<json> difference_tables(const Explanation& e, size_t most) {
  json ranges = json::array(), parts = json::array();
  for (const PartChange& c : e.recorded.ranges) ranges.push_back(change_row(c, false));
  PartChange rest{.name = "all others", .range = ""};
  for (size_t i = 0; i < e.recorded.parts.size(); ++i) {
    const PartChange& c = e.recorded.parts[i];
    if (i < most) {
      parts.push_back(change_row(c, true));
      continue;
    }
    rest.a_ms += c.a_ms, rest.b_ms += c.b_ms;
    rest.a_count += c.a_count, rest.b_count += c.b_count;
  }
  if (e.recorded.parts.size() > most) parts.push_back(change_row(rest, true));
  return {{{"id", e.phase + ".ranges"},
           {"title", "A step by range"},
           {"phase", ""},
           {"columns", {"range", "A, calls", "B, calls", "A, ms", "B, ms", "B - A, ms"}},
           {"rows", ranges}},
          {{"id", e.phase + ".parts"},
           {"title", "A step by kernel, copy and pause, the largest changes first"},
           {"phase", ""},
           {"columns", {"part", "range", "A, calls", "B, calls", "A, ms", "B, ms", "B - A, ms"}},
           {"rows", parts}}};
}

json surroundings_table(const Results& a, const Results& b) {
  json rows = json::array();
  const auto add = [&](const char* what, const std::string& x, const std::string& y) {
    rows.push_back({what, x, y, x == y ? "same" : "differs"});
  };
  const auto clock = [](const Results& results) {
    const std::vector<double> clocks = clocks_of(results);
    return clocks.empty() ? std::string("not recorded") : format_number(stats::median(clocks), 4);
  };
  add("clock in the comparisons of the run, MHz", clock(a), clock(b));
  for (const auto& [what, pointer] : {std::pair{"driver", "/gpu/driver"},
                                      {"commit", "/build/check/commit"},
                                      {"build id", "/build/build_id"},
                                      {"compiler", "/build/compiler"}})
    add(what, at_pointer(a, pointer), at_pointer(b, pointer));
  return {{"id", "surroundings"},
          {"title", "What else may change times"},
          {"phase", ""},
          {"columns", {"what", "A", "B", ""}},
          {"rows", rows}};
}

}  // namespace harness
