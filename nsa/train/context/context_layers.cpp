#include "nsa/train/context/context_layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "nsa/model/document_packing.h"
#include "nsa/train/context/context_cost.h"
#include "nsa/train/memory/mib.h"

namespace nsa::train {
namespace {

/// The row that a part of ReceivedBytes belongs to; nothing for counts and ids of blocks.
std::optional<size_t> row_of(std::string_view part) {
  if (part.ends_with("gradients")) return 3;
  if (part == "documents") return 4;
  if (part == "compressed") return 0;
  if (part == "selected") return 1;
  if (part == "compression" || part == "window") return 2;
  return std::nullopt;
}

}  // namespace

ContextLayers::ContextLayers(const RankGroup& ranks, CollectiveLog& log, int64_t size,
                             const NsaConfig& config, int64_t sequence)
    : config_(config), group_index_(ranks.rank() / size), num_groups_(ranks.world() / size) {
  require_context_shards(config, sequence, size);
  std::vector<int64_t> members;
  for (int64_t i = 0; i < size; ++i) members.push_back(group_index_ * size + i);
  const std::string name = "context group " + std::to_string(group_index_);
  log.begin("meeting of " + name);
  group_ = ranks.subgroup(name, members);
  log.end();
  attention_ = std::make_unique<ContextAttention>(*group_, log, config, sequence);
}

LayerAttention ContextLayers::attention(const at::Tensor& cu_seqlens) {
  return [this, cu_seqlens](size_t, NsaAttentionImpl& layer, const at::Tensor& x) {
    NsaAttentionImpl::Detailed out;
    out.attention = (*attention_)(layer.project(x), layer.options, cu_seqlens);
    out.y = layer.project_out(out.attention.o);
    return out;
  };
}

at::Tensor ContextLayers::mean_loss(const LossFunction& loss, const at::Tensor& logits,
                                    const at::Tensor& rows, bool packed) const {
  const ContextShard& s = shard();
  const auto of_piece = [&](int64_t slot) {
    return loss(logits.narrow(1, slot * s.piece_tokens(), s.piece_tokens()),
                rows.slice(1, s.begin(slot), s.end(slot) + 1));
  };
  if (!packed) return (of_piece(0) + of_piece(1)) / 2;
  const auto targets = [&](int64_t slot) {
    return rows.slice(1, s.begin(slot), s.end(slot)).ne(kDocumentEnd).sum().to(at::kDouble);
  };
  const at::Tensor first = targets(0), second = targets(1);
  const at::Tensor part = first / (first + second).clamp_min(1);
  return of_piece(0) * part.to(logits.scalar_type()) +
         of_piece(1) * (second / (first + second).clamp_min(1)).to(logits.scalar_type());
}

std::vector<ContextLayers::Traffic> ContextLayers::traffic(RankGroup& ranks, int64_t batch,
                                                           int64_t value_bytes) const {
  at::Tensor here = at::zeros({ranks.world(), 5}, at::kDouble);
  for (const auto& [part, bytes] : attention_->received())
    if (const auto row = row_of(part))
      here[ranks.rank()][static_cast<int64_t>(*row)] += static_cast<double>(bytes);
  here = here.to(ranks.device());
  ranks.sum(here);
  const auto calls = static_cast<double>(std::max<int64_t>(1, attention_->calls()));
  const at::Tensor most = std::get<0>(here.cpu().max(0)) / calls / kMib;
  const ContextBytes bytes = context_bytes(config_, {.sequence = shard().sequence,
                                                     .ranks = shard().world,
                                                     .batch = batch,
                                                     .value_bytes = value_bytes});
  std::vector<Traffic> rows = {{"compressed keys and values", bytes.compressed / kMib, 0},
                               {"selected keys and values", bytes.selected / kMib, 0},
                               {"boundaries of parts", bytes.boundaries / kMib, 0},
                               {"gradients", bytes.gradients / kMib, 0}};
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].received_mib = most[static_cast<int64_t>(i)].item<double>();
  if (const auto documents = most[4].item<double>(); documents > 0) {
    const double predicted = packed_bytes(bytes) / kMib;
    rows = {{"keys and values of documents", predicted, documents},
            {"gradients", predicted, rows[3].received_mib}};
  }
  return rows;
}

}  // namespace nsa::train
