#pragma once
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace nsa::cpu {

/// Runs tasks 0..count-1 on the threads of ATen, each thread taking the next task when it has done
/// one: the first tasks should be the longest. `make_worker()` is called once a thread and gives
/// what runs its tasks, with the thread's own buffers. Results must not depend on which thread runs
/// a task.
template <typename MakeWorker>
void run_tasks(int64_t count, const MakeWorker& make_worker) {
  std::atomic<int64_t> next{0};
  const int64_t workers = std::min<int64_t>(count, at::get_num_threads());
  at::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    int64_t task = next.fetch_add(1);
    if (task >= count) return;
    auto worker = make_worker();
    for (; task < count; task = next.fetch_add(1)) worker(task);
  });
}

}  // namespace nsa::cpu
