#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nsa::train {

/// Where the parameters of a unit lie in its flat buffer, and which part of it each rank keeps.
/// All counts are elements. A parameter begins at a multiple of kAligned, and so does the part of
/// a rank: elements keep their places in the vectors of an operator, so an update of a part has
/// the bits of one of the whole.
class ShardLayout {
 public:
  static constexpr int64_t kAligned = 64;

  /// `sizes`: of the parameters, each >= 1; `ranks` >= 1.
  ShardLayout(std::vector<int64_t> sizes, int64_t ranks);

  size_t num_parameters() const { return sizes_.size(); }
  int64_t total() const { return shard_ * ranks_; }  ///< of the flat buffer, padding included
  int64_t shard() const { return shard_; }           ///< of a rank
  int64_t offset(size_t parameter) const { return offsets_[parameter]; }  ///< in the flat buffer

  /// What a rank keeps of a parameter: `size` elements, maybe none.
  struct Piece {
    int64_t in_shard = 0, in_parameter = 0, size = 0;
  };
  Piece piece(size_t parameter, int64_t rank) const;

 private:
  std::vector<int64_t> sizes_, offsets_;
  int64_t ranks_, shard_ = 0;
};

}  // namespace nsa::train
