#pragma once
#include <cupti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace suites {

/// The kernel's number of the calling thread.
uint32_t own_thread();

/// A call of the CUDA runtime or driver.
struct LoggedCall {
  CUpti_CallbackDomain domain = CUPTI_CB_DOMAIN_INVALID;
  CUpti_CallbackId id = 0;
  uint64_t begin = 0, end = 0;  ///< ns of the clock of the log
  uint32_t thread = 0;          ///< the kernel's number of it
  uint32_t correlation = 0;     ///< the same as in the record of the work that it asked for
};

/// Calls as their callbacks see them, on the threads that make them: each thread writes a page of
/// its own, so nothing is locked or allocated between a call and the next. What does not fit is
/// counted. Calls may be written by any thread; take() and clear() need all of them at rest.
class CallLog {
 public:
  using Clock = uint64_t (*)();
  static constexpr size_t kCallsOfAThread = size_t{1} << 19, kMostThreads = 32;

  /// `now`: ns, of the clock that the device's records use.
  explicit CallLog(Clock now, size_t calls_of_a_thread = kCallsOfAThread,
                   size_t most_threads = kMostThreads);

  /// Makes pages for this many threads ready. A thread beyond them makes its own at its first call.
  void prepare(size_t threads);

  /// Both callbacks of a call: at its begin and at its end, which writes it down. A call whose
  /// begin was not seen has begin 0.
  void on_call(CUpti_CallbackDomain domain, CUpti_CallbackId id, const CUpti_CallbackData& data);

  /// The calls since the last take() or clear(), thread by thread in the order they ended.
  std::vector<LoggedCall> take();
  void clear();

  int64_t lost() const { return lost_.load(); }  ///< calls that found no room, since ever

 private:
  struct Page {
    std::vector<LoggedCall> calls;
    std::atomic<size_t> used{0};
  };
  /// The calling thread's page; null where none is left.
  Page* own_page();
  Page* make_page();

  const Clock now_;
  const size_t calls_of_a_thread_, most_threads_;
  const uint64_t number_;  ///< of this log in the process: pages of another are not written
  std::mutex mutex_;       ///< of the two lists
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<Page*> ready_;
  std::atomic<int64_t> lost_{0};
};

}  // namespace suites
