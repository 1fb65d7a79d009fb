#include "nsa/reference/passes/sequential.h"

#include "nsa/reference/passes/rows.h"
#include "nsa/reference/stages/rope.h"

namespace nsa::reference {

Outputs sequential(const Config& c, const Inputs& x) {
  check_inputs(c, x);
  const int64_t B = x.q.size(0), S = x.q.size(1);
  Outputs out = allocate_outputs(c, B, S, S);
  for (int64_t t = 0; t < S; ++t) {
    const Inputs so_far = slice_tokens(x, 0, t + 1);
    Rows rows(c, so_far);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t j = 0; j < c.num_kv_heads; ++j)
        store_row(c, rows.evaluate(b, t, j), b, t, j, out);
  }
  out.q_rot = c.rope == Rope::kNone ? x.q : rope(x.q, c.rope_base, c.rope_pairs);
  out.k_cmp = compress_keys(c, x.k_cmp_src, x.phi_k);
  out.v_cmp = compress_values(c, x.v_cmp_src, x.phi_v);
  return out;
}

}  // namespace nsa::reference
