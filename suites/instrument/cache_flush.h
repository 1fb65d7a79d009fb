#pragma once
#include <ATen/core/Tensor.h>

namespace suites {

/// Empties the cache of a GPU before a call that is to find it cold: writes 512 MiB on the current
/// stream, more than any L2 holds. There is none for a CPU, whose last cache is shared with other
/// processes and may hold hundreds of MiB.
class CacheFlush {
 public:
  explicit CacheFlush(at::Device device);
  /// False on a CPU, where nothing can be measured cold.
  bool available() const { return buffer_.defined(); }
  /// Queues the writes; does not wait for them.
  void operator()();

 private:
  at::Tensor buffer_;
  int64_t times_ = 0;
};

}  // namespace suites
