#pragma once
#include <c10/core/Event.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "nsa/train/gradients/communication.h"

namespace nsa::train {

/// Buckets of gradients as they were sent in the last step: bytes, and moments on the stream of the
/// backward pass (a CPU: on the host's clock). Written by hooks on the threads of the pass.
class BucketRecord {
 public:
  explicit BucketRecord(c10::Device device) : device_(device) {}

  /// A bucket is ready; index 0 begins a step.
  void ready(size_t index, int64_t bytes);
  /// Its sum is there: where the work that reads it would be queued.
  void done(size_t index);

  std::vector<int64_t> bytes() const;
  /// Of buckets whose sum is there. The device must have finished the step.
  std::vector<BucketTimes> times() const;

 private:
  struct Moment {
    std::chrono::steady_clock::time_point host;
    c10::Event event;
  };
  struct Bucket {
    int64_t bytes;
    Moment ready;
    std::vector<Moment> done;  ///< one, or none yet
  };
  Moment now() const;
  double since_first_ms(const Moment& moment) const;

  c10::Device device_;
  mutable std::mutex mutex_;
  std::map<size_t, Bucket> buckets_;
};

}  // namespace nsa::train
