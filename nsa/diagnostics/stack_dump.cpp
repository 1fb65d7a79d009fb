#include "nsa/diagnostics/stack_dump.h"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

// Everything a handler calls here is safe in a signal handler: raw system calls, and backtrace,
// which is primed by install_stack_dump so that it allocates nothing later.
namespace nsa {
namespace {

std::atomic<int> dumped{0};

void write_text(const char* text) {
  static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text)));
}

void write_number(long value) {
  char digits[24];
  char* at = digits + sizeof digits;
  *--at = '\0';
  do *--at = static_cast<char>('0' + value % 10);
  while ((value /= 10) > 0);
  write_text(at);
}

void dump_this_thread() {
  char name[17] = {};
  prctl(PR_GET_NAME, name);
  write_text("== thread ");
  write_number(syscall(SYS_gettid));
  write_text(" ");
  write_text(name);
  write_text(" ==\n");
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  dumped.fetch_add(1);
}

/// Waits up to 200 ms until `want` threads have dumped; a thread that blocks the signal is passed
/// over.
void await_dump(int want) {
  for (int i = 0; i < 200 && dumped.load() < want; ++i) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

struct Entry {  // linux_dirent64, which no header of the library declares
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

void ask_other_threads() {
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const long self = syscall(SYS_gettid);
  alignas(Entry) char buffer[4096];
  for (long got; (got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + at);
      at += entry->length;
      const long thread = std::strtol(entry->name, nullptr, 10);
      if (thread <= 0 || thread == self) continue;
      const int want = dumped.load() + 1;
      if (syscall(SYS_tgkill, getpid(), thread, SIGUSR1) == 0) await_dump(want);
    }
  }
  close(folder);
}

void on_signal(int, siginfo_t* info, void*) {
  const int saved = errno;
  const bool asked_by_us = info->si_code == SI_TKILL && info->si_pid == getpid();
  dump_this_thread();
  if (!asked_by_us) {
    ask_other_threads();
    write_text("== end of stacks ==\n");
  }
  errno = saved;
}

}  // namespace

void install_stack_dump() {
  void* primer[1];
  backtrace(primer, 1);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
}

}  // namespace nsa
