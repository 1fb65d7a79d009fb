#pragma once
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nsa/train/ranks/rank_group.h"
#include "nsa/train/ranks_testing.h"

namespace nsa::train {

using RankBody = std::function<void(const RankPlace&, std::unique_ptr<RankGroup>&)>;

/// `body` on every rank at the same time, each a thread of this process, over Gloo. The first error
/// is thrown here.
inline void on_rank_threads(int64_t world, const RankBody& body) {
  // LibTorch's record of collectives, one a process, is not safe where two threads begin their
  // first at once (FlightRecorder: `all_pg_status_` is changed before the mutex is taken).
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  const Port port;
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < world; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const RankPlace place{.rank = rank,
                              .world = world,
                              .local_rank = rank,
                              .host = "127.0.0.1",
                              .port = std::stoll(port.text())};
        auto group = std::make_unique<RankGroup>(place, at::kCPU, std::chrono::seconds(30));
        body(place, group);
        group->leave();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace nsa::train
