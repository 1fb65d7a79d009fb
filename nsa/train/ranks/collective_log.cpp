#include "nsa/train/ranks/collective_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "nsa/program/input_error.h"

namespace nsa::train {

constexpr size_t kLineBytes = 160;  ///< a line overwrites the one before it

CollectiveLog::CollectiveLog(const std::filesystem::path& file)
    : descriptor_(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0)
    throw InputError("cannot write " + file.string() + ": " + std::strerror(errno));
  write();
}

CollectiveLog::~CollectiveLog() {
  if (descriptor_ >= 0) close(descriptor_);
}

void CollectiveLog::at_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void CollectiveLog::begin(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    what_ = what;
    ended_ = false;
  }
  write();
}

void CollectiveLog::end() {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
  }
  write();
}

std::string CollectiveLog::last() const {
  const std::lock_guard lock(mutex_);
  return "step " + std::to_string(step_) + ": " + what_ + (ended_ ? ", ended" : ", begun");
}

bool CollectiveLog::has_ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void CollectiveLog::write() const {
  if (descriptor_ < 0) return;
  std::string line = last();
  line.resize(kLineBytes - 1, ' ');
  line += '\n';
  [[maybe_unused]] const ssize_t written = pwrite(descriptor_, line.data(), line.size(), 0);
}

}  // namespace nsa::train
