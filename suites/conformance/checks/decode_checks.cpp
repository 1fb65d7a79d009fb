// Decode through caches against the oracle; declared in invariant_checks.h.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "nsa/decode/attended_keys.h"
#include "nsa/decode/modes.h"
#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/convert.h"

namespace suites {
namespace {

using at::Tensor;

/// Sequences of a case at least, so that several prefill lengths meet.
constexpr int64_t kLeastSequences = 5;

/// A prefill length for every sequence of a batch, near one boundary after the other, beginning
/// beyond the ring of the window where S allows it.
std::vector<int64_t> prefill_lengths(const CaseConfig& c) {
  const int64_t l = c.block_size, lsel = c.sel_block_size, w = c.window;
  const int64_t ring = w + nsa::kSpareSlots;
  std::vector<int64_t> edges{std::min(ring + 1, std::max<int64_t>(0, c.tokens - 1))};
  for (const int64_t s : {l + 1, int64_t{0}, lsel - 1, 2 * w + 1, w + 1, l - 1, w - 1, lsel + 1,
                          int64_t{1}, l, w, ring, lsel, int64_t{37}, c.tokens})
    if (s >= 0 && s <= c.tokens) edges.push_back(s);
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < c.batch; ++b)
    lengths.push_back(edges[static_cast<size_t>(b) % edges.size()]);
  return lengths;
}

/// docs/semantics.md, Read counts: keys and values that row t of every KV head must load,
/// [B,S,Hkv,3].
Tensor expected_reads(const CaseConfig& c) {
  Tensor reads = at::zeros({c.batch, c.tokens, c.num_kv_heads, 3}, at::kLong);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const int64_t block = t / c.sel_block_size;
    const int64_t cmp = t + 1 < c.block_size ? 0 : (t + 1 - c.block_size) / c.block_stride + 1;
    const int64_t sel =
        (std::min(c.top_n, block + 1) - 1) * c.sel_block_size + t - block * c.sel_block_size + 1;
    reads.select(1, t).copy_(at::tensor({cmp, sel, std::min(c.window, t + 1)}, at::kLong));
  }
  return reads;
}

/// Source tokens loaded for the blocks that end behind the prefill, [B,Hkv].
Tensor expected_emissions(const nsa::NsaConfig& c, const std::vector<int64_t>& lengths,
                          int64_t tokens) {
  std::vector<int64_t> reads;
  for (const int64_t length : lengths)
    reads.push_back((c.num_compressed(tokens) - c.num_compressed(length)) * c.block_size);
  return at::tensor(reads, at::kLong).unsqueeze(1).repeat({1, c.num_kv_heads});
}

void fill_with_nan(nsa::LayerCache& cache) {
  for (nsa::KvRows* kv : {&cache.selected_tokens().kv, &cache.compressed_blocks().kv,
                          &cache.window().kv, &cache.compression_source().kv}) {
    kv->k.fill_(std::numeric_limits<double>::quiet_NaN());
    kv->v.fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

/// A cache's blocks as the oracle shapes them, [B,N_c(S),Hkv,D]; 0 for one that is missing.
TensorPair all_blocks(const nsa::LayerCache& cache, int64_t num_blocks) {
  std::vector<Tensor> k, v;
  for (int64_t b = 0; b < cache.num_sequences(); ++b) {
    const auto own = cache.blocks(b);
    const int64_t missing = num_blocks - own.first.size(0);
    k.push_back(at::constant_pad_nd(own.first, {0, 0, 0, 0, 0, missing}));
    v.push_back(at::constant_pad_nd(own.second, {0, 0, 0, 0, 0, missing}));
  }
  return {at::stack(k), at::stack(v)};
}

}  // namespace

Checks check_decode(const Candidate& candidate, const OperatorCase& given) {
  OperatorCase one = given;
  one.config.batch = std::max(one.config.batch, kLeastSequences);
  const std::vector<int64_t> lengths = prefill_lengths(one.config);
  Tensor reads, emissions;
  Candidate decode = candidate;
  decode.whole = true;
  decode.layer = [&](const nsa::NsaInputs& in, const nsa::NsaConfig& config,
                     const nsa::NsaOptions& options) -> nsa::NsaOutputs {
    nsa::LayerCache cache(config, in.q.size(0), in.q.size(1), in.q.options());
    fill_with_nan(cache);
    nsa::DecodeOutputs first = candidate.prefill(cache, in, lengths, options);
    first.reads = nsa::attended_keys(first, config);
    nsa::DecodeOutputs out = nsa::decode_rest(cache, in, config, first, options);
    std::tie(out.k_cmp, out.v_cmp) = all_blocks(cache, config.num_compressed(in.q.size(1)));
    reads = out.reads.cpu();
    emissions = cache.counters().emission_reads.cpu();
    return out;
  };
  Checks checks = check_forward(decode, one);
  const auto counted = [&](const char* what, const Tensor& have, const Tensor& want) {
    CompareReport report = compare_exact(have, want);
    if (!report.ok) report.text = "counted loads are not those of the formula: " + report.text;
    checks.push_back(make_check(std::string(what) + "/" + dtype_name(one.type) + "/" + one.name,
                                report, code::kModeDisagreement));
  };
  if (reads.defined()) {
    counted("reads", reads, expected_reads(one.config));
    counted("emission_reads", emissions,
            expected_emissions(to_nsa(one.config), lengths, one.config.tokens));
  }
  for (Check& check : checks) {
    check.id = "invariant/decode/" + check.id;
    if (!check.ok) check.code = code::kModeDisagreement;
  }
  return checks;
}

}  // namespace suites
