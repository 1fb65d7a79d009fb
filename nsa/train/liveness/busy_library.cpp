/// Loaded in front of libc by tests: the first fsync of a process takes as long as BUSY_SYNC asks,
/// "compute 20", "disk 20" or "sleep 20" (seconds).
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

namespace {

void compute(int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// In an uninterruptible wait, as for a disk: that of a parent of vfork for its child.
void wait_as_for_a_disk(unsigned seconds) {
  const pid_t child = vfork();
  if (child == 0) {
    sleep(seconds);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

}  // namespace

extern "C" int fsync(int descriptor) {
  static bool first = true;
  const char* how = std::getenv("BUSY_SYNC");
  if (how != nullptr && first) {
    first = false;
    const int seconds = std::atoi(std::strchr(how, ' '));
    if (how[0] == 'c') compute(seconds);
    if (how[0] == 'd') wait_as_for_a_disk(static_cast<unsigned>(seconds));
    if (how[0] == 's') sleep(static_cast<unsigned>(seconds));
  }
  return fdatasync(descriptor);
}
