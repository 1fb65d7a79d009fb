#include "harness/process/os/capped_log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "harness/process/os/file_io.h"

namespace harness {

CappedLog::CappedLog(Fd from, const std::filesystem::path& to, uint64_t cap)
    : from_(std::move(from)), file_(create_append(to)), path_(to), cap_(cap) {}

uint64_t CappedLog::drain() {
  constexpr uint64_t kMostAtOnce = 4
                                   << 20;  // a flood must not keep the watch from its other duties
  uint64_t taken = 0;
  char block[1 << 16];
  while (from_ && taken < kMostAtOnce) {
    const ssize_t n = ::read(from_.get(), block, sizeof block);
    if (n > 0) {
      keep(block, static_cast<size_t>(n));
      taken += static_cast<uint64_t>(n);
    } else if (n == 0) {
      from_.reset();
    } else if (errno != EINTR) {
      if (errno != EAGAIN) from_.reset();
      break;
    }
  }
  return taken;
}

void CappedLog::keep(const char* data, size_t size) {
  const bool was_full = bytes_ > cap_;
  const auto room = bytes_ < cap_ ? cap_ - bytes_ : 0;
  bytes_ += size;
  append(data, std::min<uint64_t>(size, room));
  if (was_full || bytes_ <= cap_) return;
  const auto marker =
      "\n[log cut here: the cap of " + std::to_string(cap_) + " bytes is reached]\n";
  append(marker.data(), marker.size());
}

void CappedLog::append(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(file_.get(), data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_file_error(path_, "write", errno);
    data += n;
    size -= static_cast<size_t>(n);
  }
}

}  // namespace harness
