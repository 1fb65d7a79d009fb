// What history got wrong (docs/faults.md).
#include <ATen/ATen.h>

#include <chrono>
#include <thread>

#include "suites/faults/injection.h"

namespace suites::injection {

using at::Tensor;

/// P01: an upper-left causal mask at query length 1 leaves only key 0.
void only_key_zero(Candidate& c) {
  c.sel_attn = [base = c.sel_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   const Tensor& ranges, int64_t first) {
    Tensor key_zero = at::zeros_like(ranges);
    if (key_zero.size(-2) > 0) key_zero.select(-2, 0).select(-1, 1).fill_(1);
    return base(q, k, v, key_zero, first);
  };
}

/// P02: rotation over H*D instead of D, so that heads turn at different speeds.
void rope_on_flat_heads(Candidate& c) {
  c.rope = [base = c.rope](const Tensor& x, const Tensor& positions, double rope_base) {
    return base(x.flatten(-2).unsqueeze(-2), positions, rope_base).view(x.sizes());
  };
}

/// Keys and values moved one token to the left: row t sees token t+1 where it should see t.
static Tensor from_next_token(const Tensor& x) {
  return at::cat({x.narrow(1, 1, x.size(1) - 1), x.narrow(1, x.size(1) - 1, 1)}, 1);
}

void window_into_future(Candidate& c) {
  c.win_attn = [base = c.win_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   int64_t window, int64_t first) {
    if (k.size(1) == 0) return base(q, k, v, window, first);
    return base(q, from_next_token(k), from_next_token(v), window, first);
  };
}

void leak_at_twice_the_window(Candidate& c) {
  c.win_attn = [base = c.win_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   int64_t window, int64_t first) {
    if (k.size(1) != 2 * window) return base(q, k, v, window, first);
    return base(q, from_next_token(k), from_next_token(v), window, first);
  };
}

/// P03: probabilities for the scores from blocks that end up to l tokens after the query.
void scores_over_future_blocks(Candidate& c) {
  c.cmp_attn = [base = c.cmp_attn](const Tensor& q, const Tensor& k, const Tensor& v,
                                   const nsa::NsaConfig& config, int64_t first) {
    nsa::CmpAttnResult right = base(q, k, v, config, first);
    right.group_probs = base(q, k, v, config, first + config.block_size).group_probs;
    return right;
  };
}

/// P03: the ring of a prefill longer than the window begins with the oldest token instead of where
/// the next one will be written.
void window_not_wrapped(Candidate& c) {
  c.prefill = [base = c.prefill](nsa::LayerCache& cache, const nsa::NsaInputs& tokens,
                                 const std::vector<int64_t>& lengths,
                                 const nsa::NsaOptions& options) {
    const nsa::DecodeOutputs out = base(cache, tokens, lengths, options);
    const int64_t slots = cache.window().num_slots();
    for (int64_t b = 0; b < cache.num_sequences(); ++b) {
      const int64_t length = cache.num_tokens(b);
      if (length <= slots) continue;
      for (Tensor* x : {&cache.window().kv.k, &cache.window().kv.v}) {
        Tensor ring = x->narrow(0, b * slots, slots);
        ring.copy_(ring.roll(-(length % slots), 0));
      }
    }
    return out;
  };
}

/// P04: after a prefill, compression begins anew with the next token.
void compression_tail_lost(Candidate& c) {
  c.prefill = [base = c.prefill](nsa::LayerCache& cache, const nsa::NsaInputs& tokens,
                                 const std::vector<int64_t>& lengths,
                                 const nsa::NsaOptions& options) {
    const nsa::DecodeOutputs out = base(cache, tokens, lengths, options);
    for (int64_t b = 0; b < cache.num_sequences(); ++b) cache.compression_source().clear(b);
    return out;
  };
}

/// P05: a decode-like call (one query) loses the current block while it is incomplete.
void partial_block_dropped(Candidate& c) {
  c.select = [base = c.select](const Tensor& scores, const Tensor& t,
                               const nsa::NsaConfig& config) {
    const Tensor ids = base(scores, t, config);
    if (scores.size(1) != 1) return ids;
    const int64_t token = t.max().item<int64_t>(), current = token / config.sel_block_size;
    if ((token + 1) % config.sel_block_size == 0) return ids;
    const Tensor kept = at::where(ids == current, at::full_like(ids, INT32_MAX), ids);
    const Tensor sorted =
        std::get<0>(at::where(kept < 0, at::full_like(kept, INT32_MAX), kept).sort(-1));
    return at::where(sorted == INT32_MAX, at::full_like(sorted, -1), sorted);
  };
}

/// P06: the fast arm is a placeholder.
void placeholder_ranges(Candidate& c) {
  c.ranges = [base = c.ranges](nsa::RangesVersion version, const Tensor& ids, const Tensor& t,
                               int64_t block) {
    const Tensor right = base(version, ids, t, block);
    return version == nsa::RangesVersion::kV2 ? at::zeros_like(right) : right;
  };
}

/// P07: whatever is asked for, v2 runs.
void backend_replaced(Candidate& c) {
  c.layer = [base = c.layer](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                             const nsa::NsaOptions& options) {
    nsa::NsaOptions other = options;
    other.ranges = nsa::RangesVersion::kV2;
    return base(inputs, config, other);
  };
}

/// P07: whatever backend of the selected branch is asked for, gather runs.
void selection_backend_replaced(Candidate& c) {
  c.runs["sel_attn"] = "varlen";
  c.layer = [base = c.layer](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                             const nsa::NsaOptions& options) {
    nsa::NsaOptions other = options;
    other.sel = nsa::SelBackend::kGather;
    return base(inputs, config, other);
  };
}

/// P11: the host waits for ever, and can still be asked where.
void ranges_never_return(Candidate& c) {
  c.ranges = [](nsa::RangesVersion, const Tensor&, const Tensor&, int64_t) -> Tensor {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  };
}

/// P08: names that are no switch are dropped instead of refused.
void unknown_switch_dropped(Candidate& c) {
  c.switches = [base = c.switches](const nsa::SwitchSet::Values& values) {
    nsa::SwitchSet::Values known;
    for (const nsa::SwitchInfo& info : nsa::switch_registry())
      if (const auto found = values.find(info.name); found != values.end()) known.insert(*found);
    return base(known);
  };
}

/// P08: switches that a path does not honour are dropped before they are checked.
void dead_switch_accepted(Candidate& c) {
  c.switches = [base = c.switches](const nsa::SwitchSet::Values& values) {
    nsa::SwitchSet::Values left = values;
    left.erase("NSA_NVTX");
    return base(left);
  };
}

}  // namespace suites::injection
