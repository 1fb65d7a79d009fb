#include "suites/instrument/cupti/call_log.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace suites {
namespace {

uint64_t next_number() {
  static std::atomic<uint64_t> logs{0};
  return ++logs;
}

}  // namespace

/// Asked for once a thread: a system call for each call of CUDA would be measurable.
uint32_t own_thread() {
  thread_local const auto number = static_cast<uint32_t>(syscall(SYS_gettid));
  return number;
}

CallLog::CallLog(Clock now, size_t calls_of_a_thread, size_t most_threads)
    : now_(now),
      calls_of_a_thread_(calls_of_a_thread),
      most_threads_(most_threads),
      number_(next_number()) {}

CallLog::Page* CallLog::make_page() {
  if (pages_.size() >= most_threads_) return nullptr;
  pages_.push_back(std::make_unique<Page>());
  pages_.back()->calls.resize(calls_of_a_thread_);  // written once: its memory is there
  return pages_.back().get();
}

void CallLog::prepare(size_t threads) {
  const std::lock_guard lock(mutex_);
  while (ready_.size() < threads) {
    Page* page = make_page();
    if (page == nullptr) return;
    ready_.push_back(page);
  }
}

CallLog::Page* CallLog::own_page() {
  thread_local uint64_t log = 0;
  thread_local Page* page = nullptr;
  if (log == number_) return page;
  const std::lock_guard lock(mutex_);
  log = number_;
  if (ready_.empty()) return page = make_page();
  page = ready_.back();
  ready_.pop_back();
  return page;
}

void CallLog::on_call(CUpti_CallbackDomain domain, CUpti_CallbackId id,
                      const CUpti_CallbackData& data) {
  if (data.callbackSite == CUPTI_API_ENTER) {
    *data.correlationData = now_();
    return;
  }
  const uint64_t end = now_();
  Page* const page = own_page();
  const size_t at = page == nullptr ? 0 : page->used.load(std::memory_order_relaxed);
  if (page == nullptr || at == page->calls.size()) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  page->calls[at] = {domain, id, *data.correlationData, end, own_thread(), data.correlationId};
  page->used.store(at + 1, std::memory_order_release);
}

std::vector<LoggedCall> CallLog::take() {
  std::vector<LoggedCall> all;
  const std::lock_guard lock(mutex_);
  for (const auto& page : pages_) {
    const auto used = static_cast<std::ptrdiff_t>(page->used.load(std::memory_order_acquire));
    all.insert(all.end(), page->calls.begin(), page->calls.begin() + used);
    page->used.store(0);
  }
  return all;
}

void CallLog::clear() {
  const std::lock_guard lock(mutex_);
  for (const auto& page : pages_) page->used.store(0);
}

}  // namespace suites
