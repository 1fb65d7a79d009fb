#include "suites/faults/faults.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace suites {
namespace {

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
Tensor from_next_token(const Tensor& x) {
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

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t swap = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, swap});
    }
  }
  return row.back();
}

}  // namespace

const std::vector<Fault>& fault_table() {
  static const std::vector<Fault> table = {
      {"P01", "selected attention sees only key 0", "ORACLE_MISMATCH", only_key_zero},
      {"P02", "RoPE on the flattened head vector", "ROPE_PROPERTY", rope_on_flat_heads},
      {"P03", "window one token too far into the future", "CAUSALITY_LEAK", window_into_future},
      {"P03/blocks", "scores softmaxed over future blocks", "CAUSALITY_LEAK",
       scores_over_future_blocks},
      {"P03/twice_window", "window leaks at S = 2w only", "CAUSALITY_LEAK",
       leak_at_twice_the_window},
      {"P05", "partial current block dropped token by token", "MODE_DISAGREEMENT",
       partial_block_dropped},
      {"P06", "the fast range arm is a placeholder", "SPEEDUP_WITHHELD", placeholder_ranges},
      {"P07", "requested range conversion silently replaced by v2", "PATH_PROOF", backend_replaced},
      {"window_off_by_one", "window one key too long", "ORACLE_MISMATCH", window_off_by_one},
      {"forced_block_dropped", "first forced block missing", "ORACLE_MISMATCH",
       forced_block_dropped},
  };
  return table;
}

Candidate with_fault(Candidate candidate, std::string_view id) {
  std::vector<std::string> names;
  for (const Fault& fault : fault_table()) {
    names.emplace_back(fault.id);
    if (fault.id != id) continue;
    fault.plant(candidate);
    return candidate;
  }
  TORCH_CHECK(false, "suites::with_fault: fault must be one of the fault table, got '", id,
              "'; nearest: ", nearest_name(id, names));
}

std::string nearest_name(std::string_view text, const std::vector<std::string>& names) {
  TORCH_CHECK(!names.empty(), "suites::nearest_name: names must not be empty");
  return *std::min_element(names.begin(), names.end(),
                           [&](const std::string& a, const std::string& b) {
                             return edit_distance(text, a) < edit_distance(text, b);
                           });
}

}  // namespace suites
