#pragma once
#include <memory>

#include "nsa/train/tasks/task.h"

namespace nsa::train {

/// Multi-query associative recall after Arora et al. 2023 (arXiv 2312.04927; generator of the
/// repository HazyResearch/zoology): `pairs` of a key and its value, then each key once more, in
/// random order at random places. The answer to a query is its value, at the next place, where the
/// text itself has none.
///   text     k1 v1 k2 v2 .. kn vn  0 .. 0  k2 0   0 0  k1 0  ..
///   answers  0  0  0  0  .. 0  0   0 .. 0  0  v2  0 0  0  v1 ..
/// Keys are different tokens of [1, vocab / 2), values of [vocab / 2, vocab). Places behind the
/// pairs are drawn with weights (i + 1)^(power - 1), i counted in places of two tokens. Unlike
/// there tokens are bytes (vocab <= 256).
struct RecallSizes {
  int64_t seq_len = 64;  ///< inputs of a row
  int64_t pairs = 8;
  int64_t vocab = 256;
  int64_t lead = 0;     ///< tokens before the pairs; even
  int64_t gap = 0;      ///< tokens between the pairs and the first place of a query; even
  double power = 0.01;  ///< of the places' weights; 1: all alike
  /// Rows have from this many different pairs to `pairs`, drawn for each; the others repeat them.
  /// 0: `pairs` in every row. Easier rows among those to train on let recall emerge sooner.
  int64_t least_pairs = 0;
  bool random_fill = false;  ///< random tokens where neither pair nor query stands; else 0
};

/// Throws InputError naming a size, its value and its bounds.
std::unique_ptr<Task> make_recall(const RecallSizes& sizes);

}  // namespace nsa::train
