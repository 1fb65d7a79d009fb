// The loader: same batches whatever the threads, warm-up apart from prefetch, faults in their
// place.
#include "nsa/train/data/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace nsa::train {
namespace {

using std::chrono::milliseconds;

/// Row r holds the bytes r, r + 1, ..; a read may take time or fail.
class CountingSource : public TokenSource {
 public:
  explicit CountingSource(milliseconds delay = {}, int64_t bad_row = -1)
      : delay_(delay), bad_row_(bad_row) {}
  void read_row(int64_t row, std::span<uint8_t> out) const override {
    ++reads;
    if (delay_.count() > 0) std::this_thread::sleep_for(delay_);
    if (row == bad_row_) throw std::runtime_error("row 6 cannot be read");
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<uint8_t>(static_cast<size_t>(row) + i);
  }
  bool is_real() const override { return false; }
  std::string describe() const override { return "counting"; }
  mutable std::atomic<int64_t> reads = 0;

 private:
  milliseconds delay_;
  int64_t bad_row_;
};

constexpr BatchShape kShape{.rows = 2, .row_tokens = 3, .stride = 2, .offset = 0};

std::vector<std::vector<uint8_t>> batches(const LoaderOptions& options, int64_t count,
                                          int64_t first = 0, const BatchShape& shape = kShape) {
  const CountingSource source(milliseconds(0));
  BatchLoader loader(source, shape, options, first);
  std::vector<std::vector<uint8_t>> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(loader.next());
  return result;
}

TEST(BatchLoader, SameOrderWhateverTheThreads) {
  const auto want = batches({.threads = 0, .warmup_batches = 0}, 50);
  EXPECT_THAT(want[1], ::testing::ElementsAre(2, 3, 4, 3, 4, 5));
  for (const int64_t threads : {0, 1, 2, 7})
    for (const int64_t queue : {1, 4})
      for (const int64_t warmup : {0, 3, 16})
        for (const bool concurrent : {false, true})
          EXPECT_EQ(batches({.threads = threads,
                             .queue = queue,
                             .rows_per_read = 1,
                             .warmup_batches = warmup,
                             .concurrent_warmup = concurrent},
                            50),
                    want)
              << threads << " threads, queue " << queue << ", warm-up " << warmup;
}

TEST(BatchLoader, ContinuesAtTheGivenBatch) {
  const auto all = batches({}, 20), rest = batches({}, 13, 7);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), all.begin() + 7));
}

TEST(BatchLoader, RanksReadTheirPartOfEveryBatch) {
  const auto whole = batches({}, 6, 0, {.rows = 4, .row_tokens = 3, .stride = 4});
  for (const int64_t rank : {0, 1}) {
    const auto part =
        batches({}, 6, 0, {.rows = 2, .row_tokens = 3, .stride = 4, .offset = 2 * rank});
    for (size_t i = 0; i < 6; ++i)
      EXPECT_TRUE(std::equal(part[i].begin(), part[i].end(), whole[i].begin() + 6 * rank));
  }
}

TEST(BatchLoader, WarmUpReadsBeforePrefetchDoes) {
  const CountingSource source(milliseconds(10));  // a batch takes 20
  BatchLoader loader(source, kShape, {.threads = 2, .warmup_batches = 8}, 0);
  const LoaderTelemetry warm = loader.telemetry();
  EXPECT_TRUE(warm.warmup_enabled);
  EXPECT_EQ(warm.warmup_batches, 8);
  EXPECT_GE(warm.warmup_s, 0.16);
  for (int i = 0; i < 20; ++i) loader.next();
  const LoaderTelemetry end = loader.telemetry();
  EXPECT_EQ(end.overlapping_reads, 0);
  EXPECT_EQ(end.batches, 20);
  EXPECT_LT(end.first_batch_ms, 20);  // it was there, nothing was read for it
  EXPECT_GE(end.start_ms, 160);
}

/// The counter can count: a warm-up beside the prefetch is seen, and reads everything twice.
TEST(BatchLoader, ConcurrentWarmUpIsCounted) {
  const CountingSource source(milliseconds(2));
  BatchLoader loader(source, kShape,
                     {.threads = 1, .queue = 8, .warmup_batches = 8, .concurrent_warmup = true}, 0);
  for (int i = 0; i < 8; ++i) loader.next();
  EXPECT_GT(loader.telemetry().overlapping_reads, 0);
  EXPECT_GE(source.reads.load(), 32);
}

TEST(BatchLoader, WarmUpEndsAtItsTimeout) {
  const CountingSource source(milliseconds(20));
  BatchLoader loader(source, kShape, {.warmup_batches = 1000, .warmup_timeout_s = 0.1}, 0);
  const LoaderTelemetry t = loader.telemetry();
  EXPECT_TRUE(t.warmup_timed_out);
  EXPECT_GE(t.warmup_batches, 1);
  EXPECT_LE(t.warmup_batches, 4);
  EXPECT_EQ(loader.next().size(), 6u);
}

TEST(BatchLoader, WithoutWarmUpTelemetryReportsIt) {
  const CountingSource source(milliseconds(20));
  BatchLoader loader(source, kShape, {.warmup_batches = 0}, 0);
  loader.next();
  EXPECT_FALSE(loader.telemetry().warmup_enabled);
  EXPECT_EQ(loader.telemetry().warmup_batches, 0);
  EXPECT_GE(loader.telemetry().first_batch_ms, 20);
}

TEST(BatchLoader, PrefetchStaysWithinItsQueue) {
  const CountingSource source;
  BatchLoader loader(source, kShape, {.threads = 3, .queue = 4, .warmup_batches = 0}, 0);
  loader.next();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(source.reads.load(), 2 * (1 + 4));
}

TEST(BatchLoader, FaultIsThrownWithItsBatch) {
  for (const int64_t warmup : {0, 8}) {
    const CountingSource source(milliseconds(0), 6);
    BatchLoader loader(source, kShape, {.threads = 2, .warmup_batches = warmup}, 0);
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(loader.next());
    EXPECT_THROW(loader.next(), std::runtime_error);
  }
}

}  // namespace
}  // namespace nsa::train
