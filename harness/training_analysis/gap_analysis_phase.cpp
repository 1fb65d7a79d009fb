// A measured rate beside what was expected and once seen, and the causes that this run has found.
#include <algorithm>
#include <array>
#include <cmath>

#include "harness/phases/builtin_phases.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"
#include "harness/training_analysis/gap_analysis.h"
#include "harness/training_analysis/run_so_far.h"

namespace harness {
namespace {

using nlohmann::json;

/// Codes of findings that explain why training is slow.
constexpr auto kCauses = std::to_array<std::string_view>(
    {"GAP_ATTRIBUTED", "HOST_BOUND", "LOADER_STALL", "MEMORY_GROWS", "PATH_PROOF", "SLOW",
     "THROTTLED", "GPU_NOT_FREE", "CONFIG_DRIFT"});

std::string reading_text(const RateGap& gap) {
  switch (gap.reading) {
    case RateGap::Reading::kSlower:
      return "slower by x" + format_number(gap.ratio, 3);
    case RateGap::Reading::kFaster:
      return "faster by x" + format_number(1 / gap.ratio, 3);
    case RateGap::Reading::kWithin:
      break;
  }
  return "within the bounds";
}

std::string interval_text(const RateGap& gap) {
  return "[" + format_number(gap.lo, 3) + ", " +
         (std::isfinite(gap.hi) ? format_number(gap.hi, 3) : "unbounded") + "]";
}

std::string rate_text(const RateReference& reference) {
  return reference.lo == reference.hi
             ? format_number(reference.lo)
             : format_number(reference.lo) + " to " + format_number(reference.hi);
}

void emit_gaps(const std::string& id, const Metric& rate,
               const std::vector<RateReference>& references, base::protocol::Emitter& emitter) {
  json rows = json::array();
  for (const RateReference& reference : references) {
    const RateGap gap = rate_gap(reference, rate);
    rows.push_back({reference.name, rate_text(reference), measured_text(rate),
                    "x" + format_number(gap.ratio, 3) + " " + interval_text(gap), reading_text(gap),
                    reference.source});
  }
  emitter.table({.case_id = id,
                 .id = "gap",
                 .title = "Measured rate beside what was expected and once seen",
                 .columns = {"reference", "tok/s", "measured", "reference over measured", "reading",
                             "source"},
                 .rows = rows});
}

/// What this run has found so far that explains a low rate, by rules and by experiment.
std::string emit_causes(const std::string& id, const Results& results,
                        base::protocol::Emitter& emitter) {
  json rows = json::array();
  std::string codes;
  for (const Finding& finding : results.findings) {
    if (std::ranges::find(kCauses, finding.code) == kCauses.end()) continue;
    rows.push_back({finding.code, finding.symptom, finding.fact, finding.action});
    codes += (codes.empty() ? "" : ", ") + finding.code;
  }
  if (rows.empty()) rows.push_back({"none", "no rule of this run names a cause", nullptr, nullptr});
  emitter.table({.case_id = id,
                 .id = "causes",
                 .title = "Causes of a low rate that this run found",
                 .columns = {"cause", "symptom", "fact", "action"},
                 .rows = rows,
                 .reason = "without a finding there is no fact"});
  return codes.empty() ? "no cause found by rule" : "found: " + codes;
}

}  // namespace

std::vector<RateReference> read_references(const json& list) {
  std::vector<RateReference> references;
  for (const json& entry : list) {
    const auto fail = [&] {
      throw Error("args.references must hold {name, lo, hi, source} with 0 < lo <= hi, got " +
                  entry.dump(-1, ' ', false, json::error_handler_t::replace));
    };
    if (!entry.is_object() || entry.size() != 4) fail();
    for (const char* key : {"name", "source"})
      if (!entry.contains(key) || !entry[key].is_string()) fail();
    for (const char* key : {"lo", "hi"})
      if (!entry.contains(key) || !entry[key].is_number()) fail();
    RateReference one{entry["name"], entry["lo"], entry["hi"], entry["source"]};
    if (!(one.lo > 0 && one.lo <= one.hi)) fail();
    references.push_back(std::move(one));
  }
  if (references.empty()) throw Error("args.references must not be empty");
  return references;
}

RateGap rate_gap(const RateReference& reference, const Metric& rate) {
  const double value = rate.value.value_or(std::nan(""));
  RateGap gap{.ratio = (reference.lo + reference.hi) / 2 / value, .lo = 0, .hi = INFINITY};
  if (rate.hi) gap.lo = reference.lo / *rate.hi;
  if (rate.lo && *rate.lo > 0) gap.hi = reference.hi / *rate.lo;
  if (gap.lo > 1) gap.reading = RateGap::Reading::kSlower;
  if (gap.hi < 1) gap.reading = RateGap::Reading::kFaster;
  return gap;
}

void run_gap_analysis(const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const std::string id = call.in.cases.front().id;
  const json args = base::protocol::merged_args(call.in, call.in.cases.front());
  const std::string of = args.value("of", "");
  const std::vector<RateReference> references = read_references(args.at("references"));
  const RunSoFar run = run_so_far(call.run_dir);
  const Metric* rate = run.figure(of, "speed.rate_tok_s");
  if (rate == nullptr) return emitter.fail_case(id, run.why_no_figure(of, "speed.rate_tok_s"));
  const RateReference& expected = references.front();
  const RateGap gap = rate_gap(expected, *rate);
  emitter.metric(
      {.case_id = id, .name = "gap.reached_ratio", .value = 1 / gap.ratio, .unit = "ratio"});
  emit_gaps(id, *rate, references, emitter);
  const std::string causes = emit_causes(id, run.results, emitter);
  if (gap.reading == RateGap::Reading::kSlower)
    emitter.finding({.code = "THROUGHPUT_GAP",
                     .symptom = measured_text(*rate) + " of " + rate_text(expected) +
                                " tok/s expected: x" + format_number(gap.ratio, 3) + " " +
                                interval_text(gap) + "; " + causes,
                     .fact = rate->id,
                     .priority = "immediate"});
  emitter.end_case(id);
}

}  // namespace harness
