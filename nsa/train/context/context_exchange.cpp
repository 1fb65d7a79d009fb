#include "nsa/train/context/context_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace nsa::train {
namespace {

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

at::Tensor as_bytes(const at::Tensor& rows) { return rows.contiguous().view({-1}).view(at::kByte); }

}  // namespace

at::Tensor ContextExchange::exchange(const at::Tensor& rows, const std::vector<int64_t>& to,
                                     const std::vector<int64_t>& from, const std::string& part) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes.at(0) = sum_of(from);
  at::Tensor got = at::empty(sizes, rows.options());
  int64_t row_bytes = static_cast<int64_t>(rows.element_size());
  for (size_t axis = 1; axis < sizes.size(); ++axis) row_bytes *= sizes[axis];
  const auto bytes = [&](std::vector<int64_t> counts) {
    for (int64_t& n : counts) n *= row_bytes;
    return counts;
  };
  std::vector<int64_t> out_bytes = bytes(from), in_bytes = bytes(to);
  at::Tensor in = as_bytes(rows), out = as_bytes(got);
  log_.begin("all-to-all of " + part);
  group_.group()->alltoall_base(out, in, out_bytes, in_bytes)->wait();
  count(part, (sum_of(from) - from.at(static_cast<size_t>(rank()))) * row_bytes);
  return got;
}

at::Tensor ContextExchange::gather(const at::Tensor& x, const std::string& part) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), world());
  at::Tensor whole = at::empty(sizes, x.options());
  at::Tensor in = as_bytes(x), out = as_bytes(whole);
  log_.begin("all-gather of " + part);
  group_.group()->_allgather_base(out, in)->wait();
  count(part, (world() - 1) * in.numel());
  return whole;
}

/// Owners come in their order, each with its pieces as it holds them.
BlockTransfer ContextExchange::agree_on_blocks(const at::Tensor& block_idx, int64_t blocks,
                                               int64_t& most) {
  const int64_t rows = block_idx.size(0) * block_idx.size(2), all = blocks * world();
  const at::Tensor ids = block_idx.to(at::kLong).permute({0, 2, 1, 3}).flatten(2).flatten(0, 1);
  at::Tensor needed = at::zeros({rows, all + 1}, ids.options().dtype(at::kBool));
  needed.scatter_(1, at::where(ids < 0, at::full_like(ids, all), ids), true);
  std::vector<int64_t> order;
  for (int64_t r = 0; r < world(); ++r) {
    const ContextShard shard{r, world(), all};  // in blocks
    for (int64_t slot = 0; slot < ContextShard::kPieces; ++slot)
      for (int64_t i = 0; i < shard.piece_tokens(); ++i) order.push_back(shard.begin(slot) + i);
  }
  const at::Tensor places = at::tensor(order, ids.options());
  at::Tensor of_owner =
      needed.index_select(1, places).view({rows, world(), blocks}).transpose(0, 1).contiguous();
  of_owner.select(0, rank()).fill_(false);
  const at::Tensor matrix = gather(of_owner.flatten(1).sum(1), "selected, counts").cpu();
  BlockTransfer transfer;
  transfer.blocks = blocks;
  for (int64_t r = 0; r < world(); ++r) {
    transfer.from.push_back(matrix[rank()][r].item<int64_t>());
    transfer.to.push_back(matrix[r][rank()].item<int64_t>());
  }
  most = matrix.sum(1).max().item<int64_t>();
  const at::Tensor wanted = of_owner.nonzero();  // owner, row, place there; ascending
  const at::Tensor owner = wanted.select(1, 0), row = wanted.select(1, 1),
                   place = wanted.select(1, 2);
  transfer.got = row * all + places.index_select(0, owner * blocks + place);
  transfer.given = exchange(row * blocks + place, transfer.from, transfer.to, "selected, ids");
  return transfer;
}

}  // namespace nsa::train
