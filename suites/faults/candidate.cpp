#include "suites/faults/candidate.h"

#include "nsa/rope/rope.h"
#include "nsa/sel_attn/sel_attn.h"
#include "nsa/select/scores.h"
#include "nsa/select/top_n.h"
#include "nsa/win_attn/win_attn.h"

namespace suites {

Candidate plain_candidate() {
  Candidate plain;
  plain.rope = nsa::rope;
  plain.compress = nsa::compress;
  plain.cmp_attn = nsa::cmp_attn;
  plain.scores = nsa::block_scores;
  plain.select = nsa::select_blocks;
  plain.ranges = nsa::block_ranges;
  plain.sel_attn = nsa::sel_attn;
  plain.win_attn = nsa::win_attn;
  plain.combine = nsa::gate_combine;
  plain.gate_mlp = nsa::gate_mlp;
  plain.layer = nsa::nsa_attention;
  return plain;
}

}  // namespace suites
