#include "nsa/train/shard/shard_layout.h"

#include <algorithm>
#include <utility>

namespace nsa::train {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

ShardLayout::ShardLayout(std::vector<int64_t> sizes, int64_t ranks)
    : sizes_(std::move(sizes)), ranks_(ranks) {
  int64_t end = 0;
  for (const int64_t size : sizes_) {
    offsets_.push_back(end);
    end = round_up(end + size, kAligned);
  }
  shard_ = round_up(end, kAligned * ranks_) / ranks_;
}

ShardLayout::Piece ShardLayout::piece(size_t parameter, int64_t rank) const {
  const int64_t first = offsets_[parameter], last = first + sizes_[parameter];
  const int64_t from = std::max(first, rank * shard_), to = std::min(last, (rank + 1) * shard_);
  if (from >= to) return {};
  return {from - rank * shard_, from - first, to - from};
}

}  // namespace nsa::train
