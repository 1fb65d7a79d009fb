#include "nsa/layer/packed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "nsa/layer/batched.h"
#include "nsa/layer/call_memory.h"
#include "nsa/layer/document_batches.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

void check_packed(const NsaInputs& in, const NsaOptions& options) {
  const ArgumentCheck check("nsa_attention");
  check.rank("q", in.q, 3, "[T, Hq, dk] with cu_seqlens");
  const int64_t tokens = in.q.size(0);
  for (const auto& [name, x] :
       {std::pair{"k_cmp_src", &in.k_cmp_src}, std::pair{"v_cmp_src", &in.v_cmp_src},
        std::pair{"k_sel", &in.k_sel}, std::pair{"v_sel", &in.v_sel}, std::pair{"k_win", &in.k_win},
        std::pair{"v_win", &in.v_win}, std::pair{"gate_logits", &in.gate_logits}}) {
    check.sizes(name, *x, {tokens, -1, -1}, "[T, H, D] with cu_seqlens");
  }
  if (options.block_idx.defined()) {
    check.sizes("block_idx", options.block_idx, {tokens, -1, -1}, "[T, Hkv, n] with cu_seqlens");
  }
}

/// Refuses a document that is longer than the caller's bound.
void check_longest(const std::vector<int64_t>& offsets, std::optional<int64_t> max_seqlen) {
  for (size_t doc = 0; max_seqlen && doc + 1 < offsets.size(); ++doc) {
    const int64_t length = offsets[doc + 1] - offsets[doc];
    if (length <= *max_seqlen) continue;
    ArgumentCheck("nsa_attention")
        .fail("document " + std::to_string(doc) + " of cu_seqlens",
              "of at most max_seqlen = " + std::to_string(*max_seqlen) + " tokens",
              std::to_string(length) + "; raise max_seqlen or leave it out");
  }
}

/// The documents of one batch as batched inputs, padded with zeros at their ends: what follows a
/// token does not reach it.
NsaInputs batch_inputs(const NsaInputs& in, const DocumentBatch& batch) {
  const auto cut = [&](const at::Tensor& x) { return batch.take(x, 0); };
  return {cut(in.q),
          cut(in.k_cmp_src),
          cut(in.v_cmp_src),
          cut(in.k_sel),
          cut(in.v_sel),
          cut(in.k_win),
          cut(in.v_win),
          cut(in.gate_logits),
          {},
          in.phi_k,
          in.phi_v,
          {}};
}

using Member = at::Tensor NsaOutputs::*;

/// One output of all batches, in the order of the packed rows; `width` pads the last axis with 0.
at::Tensor join(const std::vector<NsaOutputs>& batches, Member member, const at::Tensor& place,
                int64_t width = -1) {
  std::vector<at::Tensor> parts;
  for (const NsaOutputs& batch : batches) {
    at::Tensor part = (batch.*member).flatten(0, 1);
    if (width >= 0) part = at::constant_pad_nd(part, {0, width - part.size(-1)}, 0);
    parts.push_back(part);
  }
  const at::Tensor all = parts.size() == 1 ? parts[0] : at::cat(parts);
  return all.index_select(0, place);
}

NsaOutputs join_batches(const std::vector<NsaOutputs>& batches, const PackedLayout& layout) {
  NsaOutputs out;
  for (const Member member :
       {&NsaOutputs::o, &NsaOutputs::o_cmp, &NsaOutputs::o_sel, &NsaOutputs::o_win,
        &NsaOutputs::lse_cmp, &NsaOutputs::lse_sel, &NsaOutputs::lse_win, &NsaOutputs::q_rot,
        &NsaOutputs::block_idx, &NsaOutputs::ranges, &NsaOutputs::gates}) {
    out.*member = join(batches, member, layout.token_place);
  }
  for (const Member member : {&NsaOutputs::k_cmp, &NsaOutputs::v_cmp}) {
    out.*member = join(batches, member, layout.compressed_place);
  }
  int64_t widest = 0;
  for (const NsaOutputs& batch : batches) {
    if (batch.scores.defined()) widest = std::max(widest, batch.scores.size(-1));
    if (!batch.dropped_ids.defined()) continue;
    out.dropped_ids =
        out.dropped_ids.defined() ? out.dropped_ids + batch.dropped_ids : batch.dropped_ids;
  }
  if (batches[0].scores.defined()) {
    out.scores = join(batches, &NsaOutputs::scores, layout.token_place, widest);
  }
  out.cu_cmp = layout.cu_cmp;
  return out;
}

}  // namespace

std::vector<int64_t> check_offsets(const NsaInputs& inputs) {
  std::vector<int64_t> offsets =
      document_offsets("nsa_attention", inputs.cu_seqlens, inputs.q.size(0));
  check_longest(offsets, inputs.max_seqlen);
  return offsets;
}

NsaOutputs packed_attention(const NsaInputs& inputs, const NsaConfig& config,
                            const NsaOptions& options) {
  check_packed(inputs, options);
  const std::vector<int64_t> offsets = check_offsets(inputs);
  require_memory(inputs, config, options, /*kept=*/false);
  const PackedLayout layout = packed_layout(offsets, config, inputs.q.device());
  std::vector<NsaOutputs> batches;
  for (const DocumentBatch& batch : layout.batches) {
    NsaOptions own = options;
    if (options.block_idx.defined()) own.block_idx = batch.take(options.block_idx, -1);
    const NsaInputs in = batch_inputs(inputs, batch);
    check_call(in, config, own);
    batches.push_back(batched_attention(in, config, own));
  }
  return join_batches(batches, layout);
}

}  // namespace nsa
