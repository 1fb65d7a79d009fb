#include "nsa/layer/packed.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/core/check.h"
#include "nsa/layer/batched.h"

namespace nsa {
namespace {

/// Tokens [begin, begin + length) as a batch of one.
NsaInputs document_inputs(const NsaInputs& in, int64_t begin, int64_t length) {
  const auto cut = [&](const at::Tensor& x) { return x.narrow(0, begin, length).unsqueeze(0); };
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
          in.phi_v};
}

void check_packed(const NsaInputs& in) {
  const ArgumentCheck check("nsa_attention");
  check.rank("q", in.q, 3, "[T, Hq, dk] with cu_seqlens");
  const int64_t tokens = in.q.size(0);
  for (const auto& [name, x] :
       {std::pair{"k_cmp_src", &in.k_cmp_src}, std::pair{"v_cmp_src", &in.v_cmp_src},
        std::pair{"k_sel", &in.k_sel}, std::pair{"v_sel", &in.v_sel}, std::pair{"k_win", &in.k_win},
        std::pair{"v_win", &in.v_win}, std::pair{"gate_logits", &in.gate_logits}}) {
    check.sizes(name, *x, {tokens, -1, -1}, "[T, H, D] with cu_seqlens");
  }
}

using Member = at::Tensor NsaOutputs::*;

/// Joins one output of all documents along the token axis; `width` pads the last axis with 0.
at::Tensor join(const std::vector<NsaOutputs>& documents, Member member, int64_t width = -1) {
  std::vector<at::Tensor> parts;
  for (const NsaOutputs& document : documents) {
    at::Tensor part = (document.*member).squeeze(0);
    if (width >= 0) part = at::constant_pad_nd(part, {0, width - part.size(-1)}, 0);
    parts.push_back(part);
  }
  return at::cat(parts);
}

NsaOutputs join_documents(const std::vector<NsaOutputs>& documents) {
  NsaOutputs out;
  for (const Member member :
       {&NsaOutputs::o, &NsaOutputs::o_cmp, &NsaOutputs::o_sel, &NsaOutputs::o_win,
        &NsaOutputs::lse_cmp, &NsaOutputs::lse_sel, &NsaOutputs::lse_win, &NsaOutputs::q_rot,
        &NsaOutputs::k_cmp, &NsaOutputs::v_cmp, &NsaOutputs::block_idx, &NsaOutputs::ranges,
        &NsaOutputs::gates}) {
    out.*member = join(documents, member);
  }
  int64_t longest = 0;
  std::vector<int32_t> cu_cmp{0};
  for (const NsaOutputs& document : documents) {
    if (document.scores.defined()) longest = std::max(longest, document.scores.size(-1));
    cu_cmp.push_back(cu_cmp.back() + static_cast<int32_t>(document.k_cmp.size(1)));
    if (!document.dropped_ids.defined()) continue;
    out.dropped_ids =
        out.dropped_ids.defined() ? out.dropped_ids + document.dropped_ids : document.dropped_ids;
  }
  if (documents[0].scores.defined()) out.scores = join(documents, &NsaOutputs::scores, longest);
  out.cu_cmp = at::tensor(cu_cmp, at::kInt).to(out.o.device());
  return out;
}

}  // namespace

NsaOutputs packed_attention(const NsaInputs& inputs, const NsaConfig& config,
                            const NsaOptions& options) {
  check_packed(inputs);
  const std::vector<int64_t> offsets =
      document_offsets("nsa_attention", inputs.cu_seqlens, inputs.q.size(0));
  const size_t num_documents = offsets.size() - 1;
  std::vector<NsaOutputs> documents;
  for (size_t doc = 0; doc < std::max<size_t>(1, num_documents); ++doc) {
    const int64_t begin = offsets[doc];
    const int64_t length = doc < num_documents ? offsets[doc + 1] - begin : 0;
    NsaOptions own = options;
    if (options.block_idx.defined()) {
      own.block_idx = options.block_idx.narrow(0, begin, length).unsqueeze(0);
    }
    documents.push_back(batched_attention(document_inputs(inputs, begin, length), config, own));
  }
  NsaOutputs out = join_documents(documents);
  if (num_documents == 0) out.cu_cmp = out.cu_cmp.narrow(0, 0, 1);
  return out;
}

}  // namespace nsa
