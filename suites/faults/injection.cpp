// Ways to be wrong that the invariants are about.
#include <ATen/ATen.h>

#include <algorithm>

#include "suites/faults/documents.h"
#include "suites/faults/injection.h"

namespace suites::injection {

using at::Tensor;

void window_off_by_one(Candidate& c) {
  c.win_attn = [base = c.win_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   int64_t window,
                                   int64_t first) { return base(q, k, v, window + 1, first); };
}

/// The first forced block gives its place to -1.
void forced_block_dropped(Candidate& c) {
  c.select = [base = c.select](const Tensor& scores, const Tensor& t,
                               const nsa::NsaConfig& config) {
    const Tensor ids = base(scores, t, config);
    const Tensor rest = ids.narrow(-1, 1, ids.size(-1) - 1);
    return at::cat({rest, at::full_like(ids.narrow(-1, 0, 1), -1)}, -1);
  };
}

/// The order of equal scores turned round by a difference too small for anything else.
void ties_to_the_higher(Candidate& c) {
  c.select = [base = c.select](const Tensor& scores, const Tensor& t,
                               const nsa::NsaConfig& config) {
    const double step = scores.scalar_type() == at::kDouble ? 0x1p-50 : 0x1p-21;
    const Tensor growing = at::arange(scores.size(-1), scores.options()).mul_(step).add_(1);
    return base(scores * growing, t, config);
  };
}

void graph_broken(Candidate& c) {
  c.sel_attn = [base = c.sel_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   const Tensor& ranges,
                                   int64_t first) { return base(q, k.detach(), v, ranges, first); };
}

/// The candidate becomes one that runs documents, and takes a pack for one document.
void documents_joined(Candidate& c) {
  c.whole = true;
  c.layer = [](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
               const nsa::NsaOptions& options) {
    const Layer one_document = [](const nsa::NsaInputs& packed, const nsa::NsaConfig& same,
                                  const nsa::NsaOptions& own) {
      nsa::NsaInputs joined = packed;
      joined.cu_seqlens =
          at::tensor({int64_t{0}, packed.q.size(0)}, at::kInt).to(packed.q.device());
      nsa::NsaOutputs out = nsa::nsa_attention(joined, same, own);
      // The blocks of every document are where they would be, so that only attention is wrong.
      out.cu_cmp = nsa::nsa_attention(packed, same, own).cu_cmp;
      return out;
    };
    return as_documents(one_document, inputs, config, options);
  };
}

/// Replaces the window branch's output by edit(output, v).
template <class Edit>
static void edit_window(Candidate& c, Edit edit) {
  c.win_attn = [base = c.win_attn, edit](const Tensor& q, const Tensor& k, const Tensor& v,
                                         int64_t window, int64_t first) {
    auto [out, lse] = base(q, k, v, window, first);
    return TensorPair{edit(out, v), lse};
  };
}

void window_capped(Candidate& c) {
  c.win_attn = [base = c.win_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   int64_t window, int64_t first) {
    return base(q, k, v, std::min(window, std::max<int64_t>(1, k.size(1) / 2)), first);
  };
}

void first_head_differs(Candidate& c) {
  edit_window(c, [](const Tensor& out, const Tensor&) {
    const Tensor head = at::arange(out.size(2), out.options()).unsqueeze(-1);
    return at::where(head == 0, out * 1.5, out);
  });
}

void sum_too_long(Candidate& c) {
  edit_window(c, [](const Tensor& out, const Tensor&) { return out / (1 + 0x1p-6); });
}

void masked_by_multiplication(Candidate& c) {
  c.sel_attn = [base = c.sel_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   const Tensor& ranges, int64_t first) {
    auto [out, lse] = base(q, k, v, ranges, first);
    return TensorPair{out + v.sum() * 0, lse};
  };
}

void empty_row_filled(Candidate& c) {
  c.sel_attn = [base = c.sel_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   const Tensor& ranges, int64_t first) {
    auto [out, lse] = base(q, k, v, ranges, first);
    return TensorPair{at::where(lse.isneginf().unsqueeze(-1), v.mean(), out), lse};
  };
}

void strides_ignored(Candidate& c) {
  c.win_attn = [base = c.win_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   int64_t window, int64_t first) {
    const Tensor like = at::empty(v.sizes(), v.options());
    return base(q, k, v.as_strided(v.sizes(), like.strides(), v.storage_offset()), window, first);
  };
}

void input_overwritten(Candidate& c) {
  edit_window(c, [](const Tensor& out, const Tensor& v) {
    v.variable_data().add_(1);  // autograd does not notice: the version counter stays
    return out;
  });
}

void read_past_the_end(Candidate& c) {
  edit_window(c, [](const Tensor& out, const Tensor& v) {
    const int64_t behind = v.storage_offset() + v.numel();
    const auto stored = static_cast<int64_t>(v.storage().nbytes() / v.element_size());
    if (behind >= stored || !v.is_contiguous()) return out;
    return out + v.detach().as_strided({1}, {1}, behind);
  });
}

void row_never_written(Candidate& c) {
  edit_window(c, [](const Tensor& out, const Tensor&) {
    if (out.size(1) == 0) return out;
    const Tensor row = at::empty(out.narrow(1, 0, 1).sizes(), out.options());
    return at::cat({row, out.narrow(1, 1, out.size(1) - 1)}, 1);
  });
}

}  // namespace suites::injection
