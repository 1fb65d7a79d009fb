// A/B of the range conversions: every arm against the oracle first, then palindromic rounds in one
// process.
#include <ATen/ATen.h>

#include <algorithm>

#include "base/text/nearest.h"
#include "nsa/reference/stages/ranges.h"
#include "suites/compare/compare.h"
#include "suites/conformance/checks/check.h"
#include "suites/conformance/convert.h"
#include "suites/faults/faults.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/host_syncs.h"
#include "suites/phases/correctness/range_cases.h"
#include "suites/phases/phase.h"
#include "suites/phases/timing/rounds.h"

namespace suites {
namespace {

using at::Tensor;

constexpr int64_t kColdCalls = 8;  ///< calls of a sample with a cold cache

struct RangesSizes {
  int64_t batch, tokens, kv_heads, width, sel_block_size, rounds;
};

struct RangesArm {
  std::string name;
  nsa::RangesVersion version;
};

struct Bench {
  Candidate candidate;
  RangesSizes sizes;
  std::vector<RangesArm> arms;
  Tensor block_idx;  ///< [B,S,Hkv,K] int32 on the device
  Tensor t;          ///< [1,S] int64 on the device

  Tensor convert(nsa::RangesVersion version) const {
    return candidate.ranges(version, block_idx, t, sizes.sel_block_size);
  }
};

/// Sorted random ids in the range of a selection, as the historical measurement had them; some
/// repeat or lie ahead of t.
Tensor random_ids(const RangesSizes& sizes, uint64_t seed) {
  at::Generator g = at::detail::createCPUGenerator(seed);
  const int64_t blocks =
      std::max(sizes.width, (sizes.tokens + sizes.sel_block_size - 1) / sizes.sel_block_size);
  const Tensor ids = at::randint(
      0, blocks, {sizes.batch, sizes.tokens, sizes.kv_heads, sizes.width}, g, at::kLong);
  return std::get<0>(ids.sort(-1)).to(at::kInt);
}

/// Fault P07: where v2 is asked for, v1 runs.
auto with_v1_for_v2(decltype(Candidate::ranges) base) -> decltype(Candidate::ranges) {
  return [base](nsa::RangesVersion asked, const Tensor& ids, const Tensor& t, int64_t block) {
    return base(asked == nsa::RangesVersion::kV2 ? nsa::RangesVersion::kV1 : asked, ids, t, block);
  };
}

Bench prepare(const PhaseCase& one) {
  Bench bench;
  bench.sizes = {one.args.get_int("B", 2, 1),     one.args.get_int("S", 256, 1),
                 one.args.get_int("Hkv", 4, 1),   one.args.get_int("K", 32, 1),
                 one.args.get_int("lsel", 64, 1), one.args.get_int("rounds", 3, 1)};
  std::vector<std::string> known;
  for (auto version : range_versions()) known.push_back(to_string(version));
  for (const std::string& name : one.args.get_list("arms", known)) {
    const auto at = std::find(known.begin(), known.end(), name);
    if (at == known.end())
      throw ConfigError("args.arms must name range conversions, got '" + name +
                        "'; nearest: " + base::closest_name(name, known));
    bench.arms.push_back({name, range_versions()[static_cast<size_t>(at - known.begin())]});
  }
  bench.candidate = plain_candidate();
  if (const std::string fault = one.args.get_text("fault", ""); fault == "P07") {
    bench.candidate.ranges = with_v1_for_v2(bench.candidate.ranges);
  } else if (!fault.empty()) {
    bench.candidate = with_fault(bench.candidate, fault);
  }
  bench.block_idx = random_ids(bench.sizes, one.seed()).to(one.device);
  bench.t = at::arange(bench.sizes.tokens, at::kLong).unsqueeze(0).to(one.device);
  return bench;
}

/// Every arm against the oracle. Returns the arms that differ, as text; empty when none does.
std::string check_arms(const PhaseCase& one, const Bench& bench) {
  const Tensor expected = from_reference(
      nsa::reference::ranges(to_reference_ids(bench.block_idx), bench.sizes.sel_block_size));
  std::string differ;
  for (const RangesArm& arm : bench.arms) {
    const CompareReport report = compare_exact(bench.convert(arm.version).cpu(), expected);
    one.emitter.check(
        {.case_id = one.id,
         .id = "oracle/" + arm.name,
         .ok = report.ok,
         .code = report.ok ? "" : code::kSpeedupWithheld,
         .detail = report.ok ? report.text : "not valid, output mismatch: " + report.text,
         .err = report.err,
         .tol = 0});
    if (!report.ok) differ += (differ.empty() ? "" : ", ") + arm.name;
  }
  return differ;
}

/// Host synchronisations of one call of each arm; nothing on a CPU.
void count_syncs(const PhaseCase& one, const Bench& bench) {
  for (const RangesArm& arm : bench.arms) {
    const auto count = count_host_syncs(one.device, [&] { bench.convert(arm.version); });
    if (!count) continue;
    one.emitter.metric({.case_id = one.id,
                        .name = "hostsync." + arm.name + "_count",
                        .value = *count,
                        .unit = "count"});
  }
}

/// Every arm, its A/A repeat after it unless it is the last (the candidate).
void time_arms(const PhaseCase& one, const Bench& bench) {
  EventTimer timer(one.device);
  std::vector<TimedSeries> series;
  for (const RangesArm& arm : bench.arms) {
    const auto call = [&bench, version = arm.version] { bench.convert(version); };
    const int64_t calls = calls_per_sample(timer, call, kMinSampleMs);
    series.push_back({arm.name, call, calls});
    if (&arm != &bench.arms.back()) series.push_back({arm.name + ".aa", call, calls});
  }
  const auto cold = cold_series(one, series, kColdCalls);
  const int64_t of = bench.sizes.rounds * (cold.empty() ? 1 : 2);
  int64_t step = 0;
  time_rounds(one, series, bench.sizes.rounds, step, of);
  // After the hot ones, which no emptied cache shall touch.
  if (!cold.empty()) time_rounds(one, cold, bench.sizes.rounds, step, of);
}

}  // namespace

std::string run_ranges_ab(const PhaseCase& one) {
  if (one.in.mode != "time")
    throw ConfigError("mode of ranges_ab must be time, got '" + one.in.mode + "'");
  const Bench bench = prepare(one);
  const std::string differ = check_arms(one, bench);
  if (!differ.empty()) return "speed-up withheld: not valid, output mismatch in " + differ;
  count_syncs(one, bench);
  time_arms(one, bench);
  return "";
}

}  // namespace suites
