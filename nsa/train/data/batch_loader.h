#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "nsa/train/data/token_source.h"

namespace nsa::train {

/// How batches are read (switches NSA_FWE_*).
struct LoaderOptions {
  int64_t threads = 1;         ///< that read ahead; 0: batches are read when they are asked for
  int64_t queue = 4;           ///< batches read ahead at most
  int64_t rows_per_read = 64;  ///< rows that one read takes at most
  int64_t warmup_batches = 8;  ///< read before the first step; 0: no warm-up
  double warmup_timeout_s = 30;
  /// History, kept for comparison: the warm-up reads beside the prefetch, which reads the same
  /// batches again.
  bool concurrent_warmup = false;
};

/// Which rows batch k of this rank holds: k * stride + offset .. + rows - 1.
struct BatchShape {
  int64_t rows = 1, row_tokens = 1;
  int64_t stride = 1;  ///< rows of one batch of all ranks together
  int64_t offset = 0;  ///< first row of this rank in it
};

/// What the loader did.
struct LoaderTelemetry {
  bool warmup_enabled = false;
  int64_t warmup_batches = 0;  ///< read by the warm-up
  double warmup_s = 0;
  bool warmup_timed_out = false;
  int64_t overlapping_reads = 0;  ///< reads of warm-up and prefetch that were in flight together
  int64_t batches = 0;            ///< handed out
  double start_ms = 0;            ///< from the loader's start to its first batch, warm-up included
  double first_batch_ms = 0;      ///< that the first caller waited
  double waited_ms = 0;           ///< that callers waited in all
};

/// Hands out the batches of a TokenSource in order, whatever the number of threads. The one loader
/// of every trainer. Warm-up fills the queue before the prefetch begins, so the two never compete.
class BatchLoader {
 public:
  /// Reads ahead from batch `first_batch` on; warms up before it returns. `source` outlives it.
  BatchLoader(const TokenSource& source, const BatchShape& shape, const LoaderOptions& options,
              int64_t first_batch);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// The next batch: rows x row_tokens bytes. Rethrows what a read threw.
  std::vector<uint8_t> next();

  LoaderTelemetry telemetry() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    std::vector<uint8_t> bytes;
    std::exception_ptr error;
  };
  enum class Reader { kWarmup, kPrefetch };

  void warm_up(bool keep);
  void read_ahead();
  Slot read(int64_t batch, Reader reader);
  void count_overlap(Reader reader);
  Slot take(int64_t batch);

  const TokenSource& source_;
  BatchShape shape_;
  LoaderOptions options_;
  Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::map<int64_t, Slot> slots_;  ///< batches read and not handed out yet
  int64_t next_read_, next_given_;
  bool stopping_ = false;
  std::atomic<int64_t> in_flight_[2] = {0, 0};
  std::atomic<int64_t> overlapping_reads_ = 0;
  LoaderTelemetry telemetry_;
  std::vector<std::thread> threads_;
};

}  // namespace nsa::train
