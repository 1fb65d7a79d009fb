#pragma once
#include <memory>

#include "nsa/train/tasks/task.h"

namespace nsa::train {

/// Pass-key retrieval after Mohtashami and Jaggi 2023 (arXiv 2305.16300): a number of random digits
/// stands once in text that repeats itself, at a random depth or a given one; the row ends with the
/// question for it and the number, whose digits are the answers. Tokens are bytes.
struct PassKeySizes {
  int64_t seq_len = 512;  ///< inputs of a row
  int64_t digits = 5;
  int64_t depth_pct = -1;  ///< of the text before the number, percent; -1: drawn for each row
  /// Where a row may end at the earliest, so that numbers are looked for at many distances: a
  /// length up to seq_len is drawn for each row, evenly by its logarithm, and behind the answer
  /// more text fills the row. 0: every row ends at seq_len.
  int64_t least_seq_len = 0;
};

/// Throws InputError naming a size, its value and its bounds.
std::unique_ptr<Task> make_pass_key(const PassKeySizes& sizes);

}  // namespace nsa::train
