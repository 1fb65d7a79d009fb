#include "nsa/ops/cpu/call_workspace.h"

#include <algorithm>

#include "nsa/ops/cpu/key_gradients.h"

namespace nsa::cpu {

double workspace_bytes(const NsaConfig& config, int64_t batch, int64_t tokens, bool backward) {
  // The selected branch: its keys are all tokens.
  const int64_t dk = config.qk_head_dim, dv = config.v_head_dim;
  const int64_t dk_row = round_up(dk, kRowMultiple), dv_row = round_up(dv, kRowMultiple);
  const auto matrices = static_cast<double>(batch * config.num_kv_heads);
  const double keys = matrices * static_cast<double>(tokens);
  const auto panels = static_cast<double>(dk + dv_row + (backward ? dk_row + dv : 0));
  // Two numbers a row for the backward pass; a branch hands them on or drops them.
  const double softmax = 2 * static_cast<double>(batch * tokens * config.num_heads);
  double values = keys * panels + softmax;
  if (backward) {
    // Range i of n reaches i / n of the keys.
    const double ranges = std::max(1.0, static_cast<double>(kRangesOfCall) / matrices);
    values += keys * static_cast<double>(dk_row + dv_row) * (ranges + 1) / 2;
  }
  return values * sizeof(float);
}

}  // namespace nsa::cpu
