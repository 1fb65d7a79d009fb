#include "nsa/train/gradients/ready_queue.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

namespace nsa::train {
namespace {

using FuturePtr = ReadyQueue::FuturePtr;

FuturePtr promised() { return c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get()); }

FuturePtr ready(double value) {
  FuturePtr made = promised();
  made->markCompleted(at::full({1}, value));
  return made;
}

TEST(ReadyQueueTest, CallsRunOneAfterTheOtherInTheirOrderOnAnotherThread) {
  ReadyQueue queue(at::kCPU);
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  std::vector<FuturePtr> results;
  for (int i = 0; i < 100; ++i)
    results.push_back(queue.push([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
      return ready(i);
    }));
  for (int i = 0; i < 100; ++i) {
    results[static_cast<size_t>(i)]->wait();
    EXPECT_EQ(results[static_cast<size_t>(i)]->value().toTensor().item<double>(), i);
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_NE(threads.front(), std::this_thread::get_id());
  EXPECT_EQ(threads.front(), threads.back());
}

// As collectives need it: the second one is sent while the first is under way.
TEST(ReadyQueueTest, ACallDoesNotWaitForTheFutureOfTheOneBefore) {
  ReadyQueue queue(at::kCPU);
  const FuturePtr first_sum = promised();
  const FuturePtr first = queue.push([&] { return first_sum; });
  queue.push([] { return ready(2); })->wait();
  EXPECT_FALSE(first->completed());
  first_sum->markCompleted(at::full({1}, 1.0));
  first->wait();
  EXPECT_EQ(first->value().toTensor().item<double>(), 1);
}

TEST(ReadyQueueTest, ErrorsOfCallAndFutureReachTheResult) {
  ReadyQueue queue(at::kCPU);
  const FuturePtr thrown =
      queue.push([]() -> FuturePtr { throw std::runtime_error("no such rank"); });
  const FuturePtr held = queue.push([] {
    FuturePtr failed = promised();
    failed->setError(std::make_exception_ptr(std::runtime_error("the sum was aborted")));
    return failed;
  });
  queue.push([] { return ready(0); })->wait();  // and the queue goes on
  ASSERT_TRUE(thrown->hasError());
  ASSERT_TRUE(held->hasError());
  EXPECT_EQ(thrown->tryRetrieveErrorMessage(), "no such rank");
  EXPECT_EQ(held->tryRetrieveErrorMessage(), "the sum was aborted");
}

TEST(ReadyQueueTest, DestructorDropsCallsThatHaveNotBegun) {
  FuturePtr first, second;
  bool ran = false;
  std::promise<void> begun, go_on;
  std::thread releases;
  {
    ReadyQueue queue(at::kCPU);
    first = queue.push([&] {
      begun.set_value();
      go_on.get_future().wait();
      return ready(1);
    });
    second = queue.push([&] {
      ran = true;
      return ready(2);
    });
    begun.get_future().wait();
    releases = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      go_on.set_value();
    });
  }
  releases.join();
  EXPECT_EQ(first->value().toTensor().item<double>(), 1);
  EXPECT_FALSE(ran);
  EXPECT_THAT(second->tryRetrieveErrorMessage(), testing::HasSubstr("dropped"));
}

}  // namespace
}  // namespace nsa::train
