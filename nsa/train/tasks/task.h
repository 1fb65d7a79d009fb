#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace nsa::train {

/// Rows of tokens with answers. Row r is a function of (task, seed, r).
class Task {
 public:
  virtual ~Task() = default;

  /// S inputs and, one place later, S targets: S + 1.
  virtual int64_t row_tokens() const = 0;
  /// Fills row `row`; `answers` gets at place t the token that is to be predicted from those before
  /// t, 0 where nothing is asked. Both have row_tokens(); no answer is at place 0.
  virtual void make_row(uint64_t seed, int64_t row, std::span<uint8_t> tokens,
                        std::span<uint8_t> answers) const = 0;
  /// Name and sizes, for the record.
  virtual std::string describe() const = 0;
};

}  // namespace nsa::train
