#pragma once
#include <vector>

namespace nsa::train {

/// When a bucket was ready on this rank, and when its sum over the ranks was there; ms on one
/// clock.
struct BucketTimes {
  double ready_ms = 0, done_ms = 0;
};

/// What a backward pass and the sums of its buckets had of each other. Sums run one after the
/// other; the last bucket is ready when the pass has made its last gradient, so what is left behind
/// that is exposed.
struct Communication {
  double busy_ms = 0;     ///< some sum was under way
  double exposed_ms = 0;  ///< of that, behind the last gradient
  double overlapped_pct() const { return busy_ms > 0 ? 100 * (1 - exposed_ms / busy_ms) : 0; }
};

/// `buckets` in the order they were sent.
Communication communication_of(const std::vector<BucketTimes>& buckets);

}  // namespace nsa::train
