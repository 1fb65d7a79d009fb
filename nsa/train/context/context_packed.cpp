// Packed documents of rows that are divided among ranks. A piece holds parts of documents whose
// compression and selection blocks begin at the document, not at the row, so keys and values of
// whole rows are gathered and every rank compresses those that its queries can attend.
#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/diagnostics/record_stage.h"
#include "nsa/layer/branches.h"
#include "nsa/ops/compress/compress.h"
#include "nsa/ops/rope/rope.h"
#include "nsa/train/context/context_attention.h"

namespace nsa::train {
namespace {

/// Results of segments [1, ., ..] behind one another as rows [B, n, ..].
at::Tensor joined(const std::vector<NsaOutputs>& segments, at::Tensor NsaOutputs::* field,
                  int64_t rows) {
  std::vector<at::Tensor> parts;
  for (const NsaOutputs& out : segments) parts.push_back(out.*field);
  const at::Tensor all = at::cat(parts, 1).squeeze(0);
  return all.unflatten(0, {rows, all.size(0) / rows});
}

}  // namespace

/// Keys and values of whole rows, rotated at their places in documents.
struct ContextAttention::WholeRows {
  at::Tensor q_rot;  ///< of this rank
  at::Tensor k_cmp_src, v_cmp_src, k_sel, v_sel, k_win, v_win;
};

ContextAttention::WholeRows ContextAttention::gather_rows(
    const NsaInputs& local, const std::vector<DocumentSegment>& segments) {
  const at::Tensor positions =
      positions_of(segments).view({local.q.size(0), shard_.count()}).to(local.q.device());
  Rotation rotation(positions, config_.rope_base, config_.rope_pairs);
  const auto turned = [&](const at::Tensor& x) {
    return config_.rope == RopeMode::kNone ? x : rotation(x);
  };
  const auto whole = [&](const at::Tensor& x) { return exchange_.gather_tokens(x, "documents"); };
  WholeRows rows;
  rows.q_rot = turned(local.q);
  rows.k_cmp_src = whole(local.k_cmp_src);
  rows.v_cmp_src = whole(local.v_cmp_src);
  rows.k_sel = whole(turned(local.k_sel));
  rows.v_sel = whole(local.v_sel);
  rows.k_win = whole(turned(local.k_win));
  rows.v_win = whole(local.v_win);
  return rows;
}

NsaOutputs ContextAttention::attend_segment(const WholeRows& rows, const DocumentSegment& s,
                                            const NsaInputs& local, const NsaOptions& options) {
  const int64_t tokens = s.end - s.begin, first = s.first_position();
  const int64_t place = s.slot * shard_.piece_tokens() + s.begin - shard_.begin(s.slot);
  const auto here = [&](const at::Tensor& x) {
    return x.narrow(0, s.row, 1).narrow(1, place, tokens);
  };
  const auto of_document = [&](const at::Tensor& x, int64_t from) {
    return x.narrow(0, s.row, 1).narrow(1, s.document + from, s.seen() - from);
  };
  const auto [k_cmp, v_cmp] =
      compress(of_document(rows.k_cmp_src, 0), of_document(rows.v_cmp_src, 0), local.phi_k,
               local.phi_v, config_);
  record_stage("compress", compress_backend(rows.k_cmp_src, config_));
  const int64_t in_window = std::max<int64_t>(0, first - std::max<int64_t>(config_.window - 1, 0));
  const AttendedKeys keys{.q_rot = here(rows.q_rot),
                          .k_cmp = k_cmp,
                          .v_cmp = v_cmp,
                          .k_win = of_document(rows.k_win, in_window),
                          .v_win = of_document(rows.v_win, in_window),
                          .selected =
                              [&](const at::Tensor&) {
                                return std::pair(of_document(rows.k_sel, 0),
                                                 of_document(rows.v_sel, 0));
                              },
                          .first_position = first};
  return attend_branches(keys, here(local.gate_logits), config_, options);
}

NsaOutputs ContextAttention::attend_documents(const NsaInputs& local, const at::Tensor& cu_seqlens,
                                              const NsaOptions& options) {
  const int64_t batch = local.q.size(0);
  const std::vector<DocumentSegment> segments = segments_of(cu_seqlens, batch, shard_);
  const WholeRows rows = gather_rows(local, segments);
  last_ = SelectedTransfer::kGather;
  std::vector<NsaOutputs> of_segments;
  for (const DocumentSegment& segment : segments)
    of_segments.push_back(attend_segment(rows, segment, local, options));
  NsaOutputs out;
  for (const auto field : {&NsaOutputs::o, &NsaOutputs::o_cmp, &NsaOutputs::o_sel,
                           &NsaOutputs::o_win, &NsaOutputs::lse_cmp, &NsaOutputs::lse_sel,
                           &NsaOutputs::lse_win, &NsaOutputs::gates, &NsaOutputs::block_idx})
    out.*field = joined(of_segments, field, batch);
  return out;
}

}  // namespace nsa::train
