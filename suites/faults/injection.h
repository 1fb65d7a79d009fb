#pragma once
#include "suites/faults/candidate.h"

/// What the entries of the fault table do to a candidate: one function an entry.
namespace suites::injection {

void only_key_zero(Candidate& c);
void rope_on_flat_heads(Candidate& c);
void window_into_future(Candidate& c);
void leak_at_twice_the_window(Candidate& c);
void scores_over_future_blocks(Candidate& c);
void window_not_wrapped(Candidate& c);
void compression_tail_lost(Candidate& c);
void partial_block_dropped(Candidate& c);
void placeholder_ranges(Candidate& c);
void backend_replaced(Candidate& c);
void selection_backend_replaced(Candidate& c);
void ranges_never_return(Candidate& c);
void unknown_switch_dropped(Candidate& c);
void dead_switch_accepted(Candidate& c);
void window_off_by_one(Candidate& c);
void forced_block_dropped(Candidate& c);
void ties_to_the_higher(Candidate& c);
void graph_broken(Candidate& c);
void documents_joined(Candidate& c);
void window_capped(Candidate& c);
void first_head_differs(Candidate& c);
void sum_too_long(Candidate& c);
void masked_by_multiplication(Candidate& c);
void empty_row_filled(Candidate& c);
void strides_ignored(Candidate& c);
void input_overwritten(Candidate& c);
void read_past_the_end(Candidate& c);
void row_never_written(Candidate& c);

}  // namespace suites::injection
