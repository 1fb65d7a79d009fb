// What the parts of the emulator need of the threads it runs (emulator.cpp). Not for kernels.
#pragma once
#include <cstdint>
#include <vector>

namespace nsa::kernels::emulator {

int running_thread();
int threads_of_block();
uint64_t order_seed();
/// A number below `count`, by the seed.
int random_below(int count);
/// True now and then, in random orders only.
bool now_and_then();

/// The running thread waits at the mbarrier of this shared address until `wake_waiting`.
void sleep_at(uint32_t mbarrier);
/// One of those that no longer wait, or -1.
int wake_waiting(uint32_t mbarrier);
/// Whether a thread that others waited for yields to a waiting one: always in order 1.
bool yields_on_wake();
void run_now(int thread);
/// Another thread may go on.
void may_give_way();

/// A copy by cp.async that has not landed.
struct Copy {
  uint32_t to;
  const void* from;
  int bytes, size;
  int group;
};
void land(const Copy& copy);
/// Those of the running thread; they are no longer its own.
std::vector<Copy> take_copies();

}  // namespace nsa::kernels::emulator
