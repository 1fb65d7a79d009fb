#include "suites/faults/faults.h"

#include <c10/util/Exception.h>

#include "base/text/nearest.h"
#include "suites/faults/injection.h"

namespace suites {
const std::vector<Fault>& fault_table() {
  static const std::vector<Fault> table = {
      {"P01", "selected attention sees only key 0", "ORACLE_MISMATCH", injection::only_key_zero},
      {"P02", "RoPE on the flattened head vector", "ROPE_PROPERTY", injection::rope_on_flat_heads},
      {"P03", "window one token too far into the future", "CAUSALITY_LEAK",
       injection::window_into_future},
      {"P03/blocks", "scores softmaxed over future blocks", "CAUSALITY_LEAK",
       injection::scores_over_future_blocks},
      {"P03/twice_window", "window leaks at S = 2w only", "CAUSALITY_LEAK",
       injection::leak_at_twice_the_window},
      {"P03/window_wrap", "prefill hands the window over oldest token first", "MODE_DISAGREEMENT",
       injection::window_not_wrapped},
      {"P04", "prefill does not hand the compression tail over to decode", "MODE_DISAGREEMENT",
       injection::compression_tail_lost},
      {"P05", "partial current block dropped token by token", "MODE_DISAGREEMENT",
       injection::partial_block_dropped},
      {"P06", "the fast range arm is a placeholder", "SPEEDUP_WITHHELD",
       injection::placeholder_ranges},
      {"P07", "requested range conversion silently replaced by v2", "PATH_PROOF",
       injection::backend_replaced},
      {"P07/sel_attn", "requested selection backend silently replaced by gather", "PATH_PROOF",
       injection::selection_backend_replaced},
      {"P08", "unknown switch names dropped", "CONFIG_ERROR", injection::unknown_switch_dropped},
      {"P08/dead", "a switch that the path ignores accepted", "CONFIG_ERROR",
       injection::dead_switch_accepted},
      {"P11", "range conversion never returns", "HANG", injection::ranges_never_return},
      {"window_off_by_one", "window one key too long", "ORACLE_MISMATCH",
       injection::window_off_by_one},
      {"forced_block_dropped", "first forced block missing", "ORACLE_MISMATCH",
       injection::forced_block_dropped},
      {"ties_to_the_higher", "equal scores go to the higher index", "ORACLE_MISMATCH",
       injection::ties_to_the_higher},
      {"graph_broken", "selected attention passes no gradient to its keys", "ORACLE_MISMATCH",
       injection::graph_broken},
      {"documents_joined", "cu_seqlens ignored inside a pack", "ORACLE_MISMATCH",
       injection::documents_joined},
      {"window_capped", "window never longer than half of the sequence", "ORACLE_MISMATCH",
       injection::window_capped},
      {"first_head_differs", "one head scaled", "INVARIANT_VIOLATED",
       injection::first_head_differs},
      {"sum_too_long", "denominator of the softmax 1.6 % too large", "INVARIANT_VIOLATED",
       injection::sum_too_long},
      {"masked_by_multiplication", "masked values multiplied by 0 and added", "INVARIANT_VIOLATED",
       injection::masked_by_multiplication},
      {"empty_row_filled", "rows without a key get the mean of V", "INVARIANT_VIOLATED",
       injection::empty_row_filled},
      {"strides_ignored", "values read as if contiguous", "ORACLE_MISMATCH",
       injection::strides_ignored},
      {"input_overwritten", "values changed in place", "INVARIANT_VIOLATED",
       injection::input_overwritten},
      {"read_past_the_end", "one value behind V is added", "INVARIANT_VIOLATED",
       injection::read_past_the_end},
      {"row_never_written", "the first row of the output keeps old memory", "INVARIANT_VIOLATED",
       injection::row_never_written},
  };
  return table;
}

Candidate with_fault(Candidate candidate, std::string_view id) {
  std::vector<std::string> names;
  for (const Fault& fault : fault_table()) {
    names.emplace_back(fault.id);
    if (fault.id != id) continue;
    fault.inject(candidate);
    return candidate;
  }
  TORCH_CHECK(false, "suites::with_fault: fault must be one of the fault table, got '", id,
              "'; nearest: ", base::closest_name(id, names));
}

}  // namespace suites
