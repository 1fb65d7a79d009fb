#include "harness/engine/ranks/rank_runner.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <mutex>
#include <thread>

#include "harness/evidence/storage/files.h"
#include "harness/process/last_stage.h"
#include "harness/process/os/fd.h"
#include "harness/process/os/file_io.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What the ranks' threads share: who failed first, and when.
class FirstFailure {
 public:
  void ended(size_t rank, const GroupOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    if (outcome.status == StepStatus::kCompleted || failed_ >= 0) return;
    failed_ = static_cast<int>(rank);
    when_s_ = now_s();
  }
  int rank() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }
  bool older_than(double seconds) const {
    const std::lock_guard lock(mutex_);
    return failed_ >= 0 && now_s() - when_s_ > seconds;
  }

 private:
  mutable std::mutex mutex_;
  int failed_ = -1;
  double when_s_ = 0;
};

WatchHooks hooks_of(size_t rank, const WatchHooks& hooks, const FirstFailure& failure,
                    double grace_s) {
  WatchHooks mine;
  mine.stop_signal = [&hooks, &failure, grace_s] {
    const int outer = hooks.stop_signal ? hooks.stop_signal() : 0;
    return outer != 0 ? outer : failure.older_than(grace_s) ? SIGTERM : 0;
  };
  if (rank != 0) return mine;
  mine.on_beat = hooks.on_beat;
  mine.device_facts = hooks.device_facts;
  return mine;
}

std::string last_collective(const std::filesystem::path& notes, size_t rank) {
  const auto file = notes / ("last_collective.rank" + std::to_string(rank) + ".txt");
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return "unknown";
  const std::string text = read_bytes(file);
  return text.substr(0, text.find_last_not_of(" \n") + 1);
}

/// One outcome for all: that of the rank to blame, with what every rank did last.
GroupOutcome merge(const std::vector<WorkerSpec>& ranks, std::vector<GroupOutcome> outcomes,
                   int failed, bool interrupted, const std::filesystem::path& notes) {
  GroupOutcome result = outcomes[failed < 0 ? 0 : static_cast<size_t>(failed)];
  result.lines = 0;
  for (const GroupOutcome& each : outcomes) {
    result.lines += each.lines;
    result.seconds = std::max(result.seconds, each.seconds);
    for (const LoadedLibrary& library : each.libraries)
      if (std::ranges::find(result.libraries, library) == result.libraries.end())
        result.libraries.push_back(library);
    for (const std::string& left : each.left)
      if (&each != &outcomes[static_cast<size_t>(std::max(failed, 0))]) result.left.push_back(left);
  }
  if (failed < 0 || interrupted) return result;
  result.reason = "rank " + std::to_string(failed) + " of " + std::to_string(outcomes.size()) +
                  ": " + result.reason;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const std::string stage = last_stage(ranks[rank].stages);
    result.notes.push_back("rank " + std::to_string(rank) + ": " +
                           (outcomes[rank].cause.empty() ? "completed" : outcomes[rank].cause) +
                           ", last collective: " + last_collective(notes, rank) +
                           ", last stage: " + (stage.empty() ? "unknown" : stage));
  }
  return result;
}

}  // namespace

GroupOutcome run_ranks(const std::vector<WorkerSpec>& ranks, const WatchPolicy& policy,
                       const WatchHooks& hooks, const std::filesystem::path& notes,
                       double grace_s) {
  std::vector<GroupOutcome> outcomes(ranks.size());
  std::vector<std::exception_ptr> errors(ranks.size());
  FirstFailure failure;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        outcomes[rank] = run_worker(ranks[rank], policy, hooks_of(rank, hooks, failure, grace_s));
      } catch (...) {
        errors[rank] = std::current_exception();
      }
      failure.ended(rank, outcomes[rank]);
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  const bool interrupted = hooks.stop_signal && hooks.stop_signal() != 0;
  return merge(ranks, std::move(outcomes), failure.rank(), interrupted, notes);
}

}  // namespace harness
