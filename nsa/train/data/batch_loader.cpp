#include "nsa/train/data/batch_loader.h"

#include <algorithm>

namespace nsa::train {
namespace {

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

BatchLoader::BatchLoader(const TokenSource& source, const BatchShape& shape,
                         const LoaderOptions& options, int64_t first_batch)
    : source_(source),
      shape_(shape),
      options_(options),
      next_read_(first_batch),
      next_given_(first_batch) {
  telemetry_.warmup_enabled = options_.warmup_batches > 0;
  const bool beside = options_.concurrent_warmup && options_.threads > 0;
  if (!beside) warm_up(/*keep=*/true);
  for (int64_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { read_ahead(); });
  if (beside) warm_up(/*keep=*/false);
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BatchLoader::warm_up(bool keep) {
  const auto start = Clock::now();
  const int64_t first = next_given_;
  for (int64_t i = 0; i < options_.warmup_batches; ++i) {
    if (seconds(Clock::now() - start) >= options_.warmup_timeout_s) {
      telemetry_.warmup_timed_out = true;
      break;
    }
    Slot slot = read(first + i, Reader::kWarmup);
    if (keep) {
      slots_[first + i] = std::move(slot);
      next_read_ = first + i + 1;
    }
    ++telemetry_.warmup_batches;
  }
  telemetry_.warmup_s = seconds(Clock::now() - start);
}

/// Loop of a reader thread: reads the next batch that no other reader has taken, while there is
/// room.
void BatchLoader::read_ahead() {
  std::unique_lock lock(mutex_);
  while (true) {
    room_.wait(lock, [this] { return stopping_ || next_read_ < next_given_ + options_.queue; });
    if (stopping_) return;
    const int64_t batch = next_read_++;
    lock.unlock();
    Slot slot = read(batch, Reader::kPrefetch);
    lock.lock();
    slots_[batch] = std::move(slot);
    ready_.notify_all();
  }
}

void BatchLoader::count_overlap(Reader reader) {
  const size_t own = static_cast<size_t>(reader);
  if (in_flight_[1 - own].load() > 0) ++overlapping_reads_;
}

BatchLoader::Slot BatchLoader::read(int64_t batch, Reader reader) {
  Slot slot;
  slot.bytes.resize(static_cast<size_t>(shape_.rows * shape_.row_tokens));
  const auto width = static_cast<size_t>(shape_.row_tokens);
  std::atomic<int64_t>& in_flight = in_flight_[static_cast<size_t>(reader)];
  try {
    for (int64_t row = 0; row < shape_.rows; row += options_.rows_per_read) {
      ++in_flight;
      count_overlap(reader);
      const int64_t end = std::min(shape_.rows, row + options_.rows_per_read);
      for (int64_t r = row; r < end; ++r)
        source_.read_row(batch * shape_.stride + shape_.offset + r,
                         {slot.bytes.data() + static_cast<size_t>(r) * width, width});
      --in_flight;
    }
  } catch (...) {
    --in_flight;
    slot.error = std::current_exception();
  }
  return slot;
}

/// A batch from the queue, waiting for its reader, or read here without reader threads.
BatchLoader::Slot BatchLoader::take(int64_t batch) {
  std::unique_lock lock(mutex_);
  const bool read_here = options_.threads == 0 && !slots_.contains(batch);
  if (read_here) return read(batch, Reader::kPrefetch);
  ready_.wait(lock, [&] { return slots_.contains(batch); });
  Slot slot = std::move(slots_[batch]);
  slots_.erase(batch);
  return slot;
}

std::vector<uint8_t> BatchLoader::next() {
  const auto start = Clock::now();
  Slot slot = take(next_given_);
  {
    const std::lock_guard lock(mutex_);
    ++next_given_;
  }
  room_.notify_all();
  const double waited_ms = 1000 * seconds(Clock::now() - start);
  telemetry_.waited_ms += waited_ms;
  if (telemetry_.batches++ == 0) {
    telemetry_.first_batch_ms = waited_ms;
    telemetry_.start_ms = 1000 * seconds(Clock::now() - start_);
  }
  if (slot.error) std::rethrow_exception(slot.error);
  return std::move(slot.bytes);
}

LoaderTelemetry BatchLoader::telemetry() const {
  LoaderTelemetry result = telemetry_;
  result.overlapping_reads = overlapping_reads_.load();
  return result;
}

}  // namespace nsa::train
