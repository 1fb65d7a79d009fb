#include "nsa/layer/strict_asserts.h"

#include <ATen/ATen.h>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

bool is_finite(const at::Tensor& x) { return x.numel() == 0 || x.isfinite().all().item<bool>(); }

/// Throws for the first value of `have` [B, S, ...] that is greater than its row's `limit` [S].
void check_rows(const char* name, const at::Tensor& have, const at::Tensor& limit,
                const char* want) {
  if (have.numel() == 0) return;
  std::vector<int64_t> shape(have.dim(), 1);
  shape[1] = have.size(1);
  const at::Tensor bad = have.gt(limit.view(shape)).nonzero();
  if (bad.size(0) == 0) return;
  const at::Tensor at = bad[0].to(at::kCPU);
  at::Tensor value = have;
  for (int64_t axis = 0; axis < at.size(0); ++axis) value = value[at[axis].item<int64_t>()];
  ArgumentCheck("nsa_attention")
      .fail(name, want,
            std::to_string(value.item<int64_t>()) +
                " at t = " + std::to_string(at[1].item<int64_t>()));
}

at::Tensor positions_of(const at::Tensor& rows) {
  return at::arange(rows.size(1), rows.options().dtype(at::kLong));
}

}  // namespace

BranchResult rerouted_if_not_finite(const char* stage, const BranchResult& result,
                                    std::initializer_list<at::Tensor> inputs,
                                    const std::string& backend, const std::string& fallback,
                                    const std::function<BranchResult()>& recompute) {
  if (is_finite(result.first)) return result;
  for (const at::Tensor& input : inputs) {
    if (!is_finite(input)) return result;
  }
  const RunRecordPtr record = current_record();
  const std::string what = "non-finite output of " + backend + " on finite inputs";
  if (backend == fallback) {
    record->ran({std::string(stage) + ".assert", backend, 1, backend, "", what});
    return result;
  }
  BranchResult again;
  {
    const RunRecordScope unrecorded(c10::make_intrusive<RunRecord>());  // the row below records it
    again = recompute();
  }
  const std::string outcome = is_finite(again.first) ? "" : "; still not finite";
  record->ran({stage, fallback, 1, backend, "", "REROUTED: " + what + outcome});
  return again;
}

void check_causal_ranges(const at::Tensor& ranges) {
  check_rows("end of ranges", ranges.select(-1, 1), positions_of(ranges).add(1), "at most t + 1");
}

void check_causal_blocks(const at::Tensor& block_idx, int64_t sel_block_size) {
  check_rows("block_idx", block_idx, positions_of(block_idx).floor_divide(sel_block_size),
             "at most floor(t / l')");
}

}  // namespace nsa
