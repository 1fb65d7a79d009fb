#include "nsa/kernels/tests/emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "nsa/kernels/tests/emulator/emulator.h"

namespace nsa::kernels::emulator {
namespace {

constexpr size_t kPage = 4096, kRoom = (kMostSharedBytes + kPage - 1) / kPage * kPage + kPage;
constexpr int kNan = 0xff;  // every byte of it

/// Memory between two inaccessible pages.
char* map_guarded(size_t bytes) {
  void* p = mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  if (p == MAP_FAILED) fail("no memory");
  char* const begin = static_cast<char*>(p) + kPage;
  if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) fail("no memory");
  return begin;
}

char* room() {
  static char* const begin = map_guarded(kRoom);
  return begin;
}
char* place_of(size_t bytes) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(room() + kRoom - bytes) / 128 * 128);
}

/// Reports what was touched, then goes on as without this.
void touched(int signal, siginfo_t* info, void*) {
  const char* const at = static_cast<const char*>(info->si_addr);
  if (at >= room() - kPage && at < room() + kRoom + kPage)
    fail("access %td bytes from the start of dynamic shared memory", at - shared_memory());
  std::signal(signal, SIG_DFL);
}
void watch_guards() {
  static char stack[64 * 1024];  // a fiber's may be what ran over
  stack_t other{};
  other.ss_sp = stack, other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_sigaction = touched;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

char* begin_shared(size_t bytes) {
  static const bool watched = (watch_guards(), true);
  (void)watched;
  char* const begin = std::max(room(), place_of(bytes) - kPage);
  std::memset(begin, kNan, room() + kRoom - begin);
  return place_of(bytes);
}

bool end_shared(size_t bytes) {
  const char* const place = place_of(bytes);
  const auto untouched = [](const char* from, const char* to) {
    return std::all_of(from, to, [](char c) { return static_cast<unsigned char>(c) == kNan; });
  };
  return untouched(std::max<const char*>(room(), place - kPage), place) &&
         untouched(place + bytes, room() + kRoom);
}

char* stack_of(int i) {
  static char* stacks[kMostFibers] = {};
  if (stacks[i] == nullptr) stacks[i] = map_guarded(kStackBytes);
  return stacks[i];
}

}  // namespace nsa::kernels::emulator
