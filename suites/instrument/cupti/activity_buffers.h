#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace suites {

/// Where CUPTI writes records: large aligned blocks, reused, handed out zeroed. Handing a ready one
/// out and taking it back do nothing else, because CUPTI calls from inside its own locks, on the
/// threads that launch; records are read and blocks cleared afterwards. Thread-safe.
class ActivityBuffers {
 public:
  struct Filled {
    uint8_t* data;
    size_t bytes;
  };
  static constexpr size_t kBytes = 8 << 20;

  /// `most`: blocks in all; when all are in use the next request is refused and records are lost,
  /// which CUPTI counts.
  explicit ActivityBuffers(size_t most) : most_(most) {}
  ~ActivityBuffers();
  ActivityBuffers(const ActivityBuffers&) = delete;
  ActivityBuffers& operator=(const ActivityBuffers&) = delete;

  /// Makes `count` blocks ready, so that none is made while something is measured.
  void prepare(size_t count);
  uint8_t* request();  ///< null: no block is left
  void complete(uint8_t* data, size_t valid_bytes);

  /// Blocks with records, in the order they came; give each back by `recycle`, which clears it.
  std::vector<Filled> take_filled();
  void recycle(const Filled& used);

  int64_t refused() const;

 private:
  uint8_t* make();

  const size_t most_;
  mutable std::mutex mutex_;
  std::vector<uint8_t*> all_, free_;
  std::vector<Filled> filled_;
  int64_t refused_ = 0;
};

}  // namespace suites
