#include "nsa/train/gradients/communication.h"

#include <algorithm>

namespace nsa::train {

Communication communication_of(const std::vector<BucketTimes>& buckets) {
  Communication result;
  if (buckets.empty()) return result;
  const double last_gradient = buckets.back().ready_ms;
  double free_from = buckets.front().ready_ms;
  for (const BucketTimes& bucket : buckets) {
    const double start = std::max(bucket.ready_ms, free_from);
    const double end = std::max(start, bucket.done_ms);
    result.busy_ms += end - start;
    result.exposed_ms += std::max(0.0, end - std::max(start, last_gradient));
    free_from = end;
  }
  return result;
}

}  // namespace nsa::train
