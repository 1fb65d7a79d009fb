// Tasks run on as many threads as ATen has, at the same time; errors reach the caller.
#include "nsa/ops/cpu/task_queue.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace nsa::cpu {
namespace {

/// Sets the number of threads while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Threads that `tasks` tasks meet on; each waits a while until `wanted` have come.
size_t threads_that_meet(int64_t tasks, size_t wanted) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const auto enough = [&] {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
    return seen.size() >= wanted;
  };
  run_tasks(tasks, [&] {
    return [&](int64_t) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
      while (!enough() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    };
  });
  return seen.size();
}

TEST(TaskQueue, RunsOnAllThreadsAtOneTime) {
  for (const int count : {1, 2, 5}) {
    const Threads threads(count);
    EXPECT_EQ(threads_that_meet(count, static_cast<size_t>(count)), static_cast<size_t>(count));
  }
}

TEST(TaskQueue, TakesNoMoreThreadsThanTasks) {
  const Threads threads(4);
  EXPECT_EQ(threads_that_meet(2, 2), 2U);
  EXPECT_EQ(threads_that_meet(1, 1), 1U);
  EXPECT_EQ(threads_that_meet(0, 1), 0U);
}

TEST(TaskQueue, RunsEveryTaskOnce) {
  const Threads threads(3);
  std::vector<std::atomic<int>> runs(1000);
  run_tasks(1000, [&] { return [&](int64_t task) { ++runs[static_cast<size_t>(task)]; }; });
  for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
}

TEST(TaskQueue, StaysOnItsThreadInsideOfATask) {
  const Threads threads(2);
  std::atomic<int> others{0};
  run_tasks(2, [&] {
    return [&](int64_t) {
      const auto own = std::this_thread::get_id();
      run_tasks(4, [&] { return [&](int64_t) { others += std::this_thread::get_id() != own; }; });
    };
  });
  EXPECT_EQ(others, 0);
}

TEST(TaskQueue, PassesAnErrorOn) {
  const Threads threads(2);
  const auto run = [] {
    run_tasks(8, [] {
      return [](int64_t task) {
        if (task == 5) throw std::runtime_error("task 5");
      };
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
}

}  // namespace
}  // namespace nsa::cpu
