// Block ids to token intervals: every conversion and the oracle against the true intervals, bit for
// bit.
#include <ATen/ATen.h>

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

}  // namespace

std::string run_ranges_equivalence(const PhaseCase& one) {
  Candidate candidate = plain_candidate();
  if (one.args.has("fault")) candidate = with_fault(candidate, one.args.get_text("fault", ""));
  const std::vector<RangeCase> cases =
      read_range_cases(one.args.get_text("file", "configs/ranges/cases.jsonl"));
  int64_t step = 0;
  for (const RangeCase& each : cases) {
    emit(one, "oracle/" + each.id, compare_exact(oracle_ranges(each), each.expected));
    for (auto version : range_versions()) {
      const at::Tensor got = candidate.ranges(version, each.block_idx.to(one.device),
                                              each.t.to(one.device), each.sel_block_size);
      emit(one, to_string(version) + "/" + each.id, compare_exact(got.cpu(), each.expected));
    }
    one.emitter.beat({.case_id = one.id,
                      .step = ++step,
                      .of = static_cast<int64_t>(cases.size()),
                      .at = "ranges"});
  }
  return "";
}

}  // namespace suites
