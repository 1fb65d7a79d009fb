// Block ids to token intervals: every conversion and the oracle against the true intervals, bit for
// bit.
#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/layer/random_inputs.h"
#include "nsa/reference/stages/ranges.h"
#include "suites/compare/compare.h"
#include "suites/conformance/checks/check.h"
#include "suites/conformance/convert.h"
#include "suites/faults/faults.h"
#include "suites/phases/correctness/range_cases.h"
#include "suites/phases/phase.h"

namespace suites {
namespace {

void emit(const PhaseCase& one, const std::string& id, const CompareReport& report) {
  one.emitter.check({.case_id = one.id,
                     .id = id,
                     .ok = report.ok,
                     .code = report.ok ? "" : code::kOracleMismatch,
                     .detail = report.text,
                     .err = report.err,
                     .tol = 0});
}

/// The conversion that an attention call takes under the switches of the phase, by its record of
/// what ran; empty when that names none.
std::string conversion_in_force(const PhaseCase& one, const Candidate& candidate) {
  constexpr int64_t kTokens = 130;  // more than one selection block
  const nsa::NsaConfig config;
  at::manual_seed(one.seed());
  const nsa::NsaInputs inputs =
      nsa::random_inputs(config, 1, kTokens, at::TensorOptions(one.device).dtype(at::kDouble));
  const nsa::NsaOutputs out = candidate.layer(inputs, config, one.options);
  for (const nsa::RanBackend& row : out.ran)
    if (row.stage == "ranges") return row.backend;
  return "";
}

nsa::RangesVersion version_in_force(const PhaseCase& one, const Candidate& candidate) {
  const std::string name = conversion_in_force(one, candidate);
  const auto& versions = range_versions();
  const auto found = std::ranges::find_if(
      versions, [&](nsa::RangesVersion version) { return to_string(version) == name; });
  if (found == versions.end())
    throw std::runtime_error("an attention call records the conversion '" + name +
                             "'; known: v1, v1_bulk, v2");
  one.emitter.metric({.case_id = one.id,
                      .name = "in_force.v2_bool",
                      .value = *found == nsa::RangesVersion::kV2,
                      .unit = "bool"});
  return *found;
}

}  // namespace

std::string run_ranges_equivalence(const PhaseCase& one) {
  Candidate candidate = plain_candidate();
  if (const std::string fault = one.args.get_text("fault", ""); !fault.empty())
    candidate = with_fault(candidate, fault);
  const std::vector<RangeCase> cases =
      read_range_cases(one.args.get_text("file", "configs/ranges/cases.jsonl"));
  const nsa::RangesVersion in_force = version_in_force(one, candidate);
  int64_t step = 0;
  for (const RangeCase& each : cases) {
    emit(one, "oracle/" + each.id, compare_exact(oracle_ranges(each), each.expected));
    for (auto version : range_versions()) {
      const at::Tensor got = candidate.ranges(version, each.block_idx.to(one.device),
                                              each.t.to(one.device), each.sel_block_size);
      const CompareReport report = compare_exact(got.cpu(), each.expected);
      emit(one, to_string(version) + "/" + each.id, report);
      if (version == in_force) emit(one, "in_force/" + each.id, report);
    }
    one.emitter.beat({.case_id = one.id,
                      .step = ++step,
                      .of = static_cast<int64_t>(cases.size()),
                      .at = "ranges"});
  }
  return "";
}

}  // namespace suites
