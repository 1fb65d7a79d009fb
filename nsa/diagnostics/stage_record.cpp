#include "nsa/diagnostics/stage_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace nsa {
namespace {

constexpr size_t kFileBytes = size_t{StageRecord::kThreads} * StageRecord::kSlotBytes;
constexpr int kDeepest = 16;  // stages inside of one another
constexpr std::array<char, 3> kInside = {' ', '>', ' '};

/// Slots of the record in force; null: none.
std::atomic<char*> slots{nullptr};
std::atomic<int> threads{0};
std::atomic<int> generation{0};  // of the record in force: slots of an earlier one are not used

/// One thread's slot. Only its own thread writes it, so nothing here is locked.
class Slot {
 public:
  void enter(const char* name) {
    if (depth_++ >= kDeepest || !open()) return;
    const auto level = static_cast<size_t>(depth_ - 1);
    size_t at = level == 0 ? head_ : ends_[level - 1];
    begins_[level] = at;
    const size_t bytes = std::strlen(name), mark = level == 0 ? 0 : kInside.size();
    if (at + mark + bytes + 1 > StageRecord::kSlotBytes) {
      ends_[level] = at;  // does not fit: what lies inside of it will not either
      return;
    }
    if (mark > 0) std::memcpy(slot_ + at, kInside.data(), mark);
    std::memcpy(slot_ + at + mark, name, bytes);
    ends_[level] = at + mark + bytes;
    std::memset(slot_ + ends_[level], 0, StageRecord::kSlotBytes - ends_[level]);
  }

  /// The text stays, marked as left: it is what was launched last.
  void leave() {
    if (depth_ > 0) --depth_;
    if (depth_ >= kDeepest || slot_ == nullptr || generation_ != generation.load()) return;
    const auto level = static_cast<size_t>(depth_);
    if (level > 0 && ends_[level] > begins_[level]) slot_[begins_[level] + 1] = ';';
  }

 private:
  /// Takes a slot of the record in force at the thread's first stage.
  bool open() {
    const int now = generation.load();
    if (generation_ == now) return slot_ != nullptr;
    generation_ = now;
    slot_ = nullptr;
    char* const all = slots.load();
    const int index = threads.fetch_add(1);
    if (all == nullptr || index >= StageRecord::kThreads) return false;
    slot_ = all + static_cast<ptrdiff_t>(index) * StageRecord::kSlotBytes;
    const std::string head = std::to_string(syscall(SYS_gettid)) + ": ";
    std::memcpy(slot_, head.data(), head.size());
    head_ = head.size();
    begins_.fill(head_);
    ends_.fill(head_);  // stages that were entered before the record began
    return true;
  }

  int generation_ = 0, depth_ = 0;
  char* slot_ = nullptr;
  size_t head_ = 0;
  std::array<size_t, kDeepest> begins_ = {}, ends_ = {};
};

Slot& own_slot() {
  thread_local Slot slot;
  return slot;
}

}  // namespace

StageRecord::StageRecord(const std::filesystem::path& file) : file_(file) {
  const auto fail = [&] {
    throw std::system_error(errno, std::generic_category(), "cannot write " + file.string());
  };
  const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) fail();
  // Space is taken now: writing to a mapped hole of a full disk would end the process.
  const int no_space = posix_fallocate(descriptor, 0, kFileBytes);
  void* mapped = no_space != 0
                     ? MAP_FAILED
                     : mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (no_space != 0) errno = no_space;
  const int why = errno;
  close(descriptor);
  errno = why;
  if (mapped == MAP_FAILED) fail();
  threads = 0;
  slots = static_cast<char*>(mapped);
  ++generation;
}

StageRecord::~StageRecord() {
  slots = nullptr;
  ++generation;
  // The mapping stays: a thread may be about to write its slot. It is one page.
  std::error_code ignored;
  if (!kept_) std::filesystem::remove(file_, ignored);
}

void StageRecord::enter(const char* name) {
  if (slots.load(std::memory_order_relaxed) != nullptr) own_slot().enter(name);
}

void StageRecord::leave() {
  if (slots.load(std::memory_order_relaxed) != nullptr) own_slot().leave();
}

}  // namespace nsa
