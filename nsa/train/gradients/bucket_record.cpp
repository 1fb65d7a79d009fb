#include "nsa/train/gradients/bucket_record.h"

#include <ATen/DeviceAccelerator.h>

#include <utility>

namespace nsa::train {

BucketRecord::Moment BucketRecord::now() const {
  Moment moment{std::chrono::steady_clock::now(),
                c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT)};
  if (!device_.is_cpu()) moment.event.record(at::accelerator::getCurrentStream(device_.index()));
  return moment;
}

void BucketRecord::ready(size_t index, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (index == 0) buckets_.clear();
  buckets_.insert_or_assign(index, Bucket{bytes, now(), {}});
}

void BucketRecord::done(size_t index) {
  const std::lock_guard lock(mutex_);
  const auto found = buckets_.find(index);
  if (found != buckets_.end() && found->second.done.empty()) found->second.done.push_back(now());
}

std::vector<int64_t> BucketRecord::bytes() const {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> all;
  for (const auto& [_, bucket] : buckets_) all.push_back(bucket.bytes);
  return all;
}

double BucketRecord::since_first_ms(const Moment& moment) const {
  const Moment& first = buckets_.begin()->second.ready;
  if (!device_.is_cpu()) return first.event.elapsedTime(moment.event);
  return std::chrono::duration<double, std::milli>(moment.host - first.host).count();
}

std::vector<BucketTimes> BucketRecord::times() const {
  const std::lock_guard lock(mutex_);
  std::vector<BucketTimes> all;
  for (const auto& [_, bucket] : buckets_)
    if (!bucket.done.empty())
      all.push_back({since_first_ms(bucket.ready), since_first_ms(bucket.done.front())});
  return all;
}

}  // namespace nsa::train
