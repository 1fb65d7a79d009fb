#pragma once
#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace nsa::train {

/// Enqueues device work when its inputs are complete, not when the host reaches it. The host is
/// tens of milliseconds ahead of the device; streams that wait for events all that time make every
/// launch on other streams slower (two H200s: pauses between the kernels of a training step grow
/// from 1.2 us to 2.8 when the first sum waits and shrink as the last ones begin).
class ReadyQueue {
 public:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
  /// Enqueues work and returns at once, with a future of a tensor.
  using Call = std::function<FuturePtr()>;

  explicit ReadyQueue(c10::Device device);
  /// Calls that have not begun are dropped; their futures have errors.
  ~ReadyQueue();
  ReadyQueue(const ReadyQueue&) = delete;
  ReadyQueue& operator=(const ReadyQueue&) = delete;

  /// Has `call` run on the queue's thread and stream, one call after the other in the order of
  /// push(), when everything enqueued so far on the caller's stream has ended; with `in_order` as
  /// soon as the calls before have begun, and the stream waits instead. The future is completed as
  /// that of `call`, or with what it throws. From any thread.
  FuturePtr push(Call call, bool in_order = false);

 private:
  struct Entry {
    std::optional<c10::Event> inputs;  ///< none on a CPU
    Call call;
    FuturePtr result;
    bool in_order;
  };
  void work();
  bool await(const Entry& entry) const;
  void begin(const Entry& entry) const;
  bool stopping() const;

  c10::Device device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool stop_ = false;
  std::thread thread_;  ///< last, as it uses the others
};

}  // namespace nsa::train
