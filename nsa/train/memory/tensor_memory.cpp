#include "nsa/train/memory/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "nsa/train/memory/memory.h"
#include "nsa/train/memory/mib.h"
#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace nsa::train {
namespace {

constexpr size_t kShown = 8;  ///< of the largest allocations

std::mutex failure_mutex;
std::optional<AllocationFailure> failure;

void keep_failure(AllocationFailure found) {
  std::sort(found.largest_mib.begin(), found.largest_mib.end(), std::greater<>());
  found.largest_mib.resize(std::min(found.largest_mib.size(), kShown));
  const std::lock_guard lock(failure_mutex);
  failure = std::move(found);
}

/// The CPU's allocator with every living allocation known by its size.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}

  void limit(size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }
  c10::DataPtr allocate(size_t bytes) override {
    begin(bytes);
    c10::DataPtr data;
    try {
      data = base_->allocate(bytes);
    } catch (const c10::Error&) {
      end(bytes);
      fail(bytes);
    }
    // Callers of raw_allocate need the address as the context.
    void* const address = data.get();
    if (address == nullptr) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    const std::lock_guard lock(mutex_);
    living_.emplace(address, Kept{std::move(data), bytes});
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    base_->copy_data(to, from, bytes);
  }
  double peak_mib() const {
    const std::lock_guard lock(mutex_);
    return static_cast<double>(peak_) / kMib;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = in_use_;
  }

 private:
  struct Kept {
    c10::DataPtr data;
    size_t bytes;
  };
  static void release(void* address);
  void begin(size_t bytes) {
    std::unique_lock lock(mutex_);
    const bool fits = limit_ == 0 || in_use_ + bytes <= limit_;
    if (fits) {
      in_use_ += bytes;
      peak_ = std::max(peak_, in_use_);
      return;
    }
    lock.unlock();
    fail(bytes);
  }
  void end(size_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
  }
  [[noreturn]] void fail(size_t bytes) {
    AllocationFailure found{.asked_mib = static_cast<double>(bytes) / kMib};
    {
      const std::lock_guard lock(mutex_);
      found.in_use_mib = static_cast<double>(in_use_) / kMib;
      found.capacity_mib = static_cast<double>(limit_) / kMib;
      for (const auto& [_, kept] : living_)
        found.largest_mib.push_back(static_cast<double>(kept.bytes) / kMib);
    }
    keep_failure(found);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CPU out of memory: ", found.asked_mib,
                     " MiB asked for, ", found.in_use_mib, " MiB in use by tensors, limit ",
                     found.capacity_mib, " MiB (0: none)");
  }

  c10::Allocator* base_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, Kept> living_;
  size_t in_use_ = 0, peak_ = 0, limit_ = 0;
};

CountingAllocator* counting = nullptr;

void CountingAllocator::release(void* address) {
  c10::DataPtr data;  // freed behind the lock
  const std::lock_guard lock(counting->mutex_);
  const auto found = counting->living_.find(address);
  counting->in_use_ -= found->second.bytes;
  data = std::move(found->second.data);
  counting->living_.erase(found);
}

#ifdef NSA_WITH_CUDA
/// Called by the GPU's allocator when it has nothing left, before it throws.
void note_device_failure(int64_t device, size_t asked, size_t /*total*/, size_t free) {
  AllocationFailure found{.asked_mib = static_cast<double>(asked) / kMib};
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments) {
    if (segment.device != device) continue;
    found.capacity_mib += static_cast<double>(segment.total_size) / kMib;
    for (const auto& block : segment.blocks)
      if (block.allocated) found.largest_mib.push_back(static_cast<double>(block.size) / kMib);
  }
  for (const double mib : found.largest_mib) found.in_use_mib += mib;
  found.capacity_mib += static_cast<double>(free) / kMib;
  keep_failure(found);
}
#endif

void watch_device() {
#ifdef NSA_WITH_CUDA
  static const bool attached = [] {
    c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(note_device_failure);
    return true;
  }();
  static_cast<void>(attached);
#endif
}

}  // namespace

void watch_tensor_memory(c10::Device device, double limit_mib) {
  {
    const std::lock_guard lock(failure_mutex);
    failure.reset();
  }
  if (!device.is_cpu()) return watch_device();
  if (counting == nullptr) {
    counting = new CountingAllocator(c10::GetCPUAllocator());  // lives as long as any tensor may
    c10::SetCPUAllocator(counting, /*priority=*/255);
  }
  counting->limit(static_cast<size_t>(limit_mib * kMib));
}

double tensor_peak_mib(c10::Device device) {
  if (!device.is_cpu()) return peak_requested_mib(device);
  return counting == nullptr ? 0 : counting->peak_mib();
}

void reset_tensor_peak(c10::Device device) {
  if (!device.is_cpu()) return reset_peak_memory(device);
  if (counting != nullptr) counting->reset_peak();
}

std::optional<AllocationFailure> last_allocation_failure() {
  const std::lock_guard lock(failure_mutex);
  return failure;
}

}  // namespace nsa::train
