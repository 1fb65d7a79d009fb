#pragma once
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>

namespace nsa::cpu {

/// Calls `work` at one time on `count` of ATen's threads, but on no more than ATen has; on the
/// calling thread alone inside of ATen's parallel work. Passes on what one of them throws.
void call_on_threads(int64_t count, c10::function_ref<void()> work);

/// Runs tasks 0..count-1 on the threads of ATen, each thread taking the next task when it has done
/// one: the first tasks should be the longest. `make_worker()` is called once a thread and gives
/// what runs its tasks, with the thread's own buffers. Results must not depend on which thread runs
/// a task.
template <typename MakeWorker>
void run_tasks(int64_t count, const MakeWorker& make_worker) {
  std::atomic<int64_t> next{0};
  call_on_threads(count, [&] {
    int64_t task = next.fetch_add(1);
    if (task >= count) return;
    auto worker = make_worker();
    for (; task < count; task = next.fetch_add(1)) worker(task);
  });
}

}  // namespace nsa::cpu
