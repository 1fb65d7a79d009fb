// Fibers, their order, and the meeting points of emulator.h.
#include "nsa/kernels/tests/emulator/emulator.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "nsa/kernels/tests/emulator/async_memory.h"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/context_switch.h"
#include "nsa/kernels/tests/emulator/flights.h"
#include "nsa/kernels/tests/emulator/memory.h"
#include "nsa/kernels/tests/emulator/order.h"
#include "nsa/kernels/tests/emulator/sm90/mbarrier.h"
#include "nsa/kernels/tests/emulator/sm90/wgmma.h"
#include "nsa/kernels/tests/emulator/threads.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace nsa::kernels::emulator {
namespace {

/// What lanes of a warp wait for each other at.
struct Meeting {
  const char* what = nullptr;
  uint32_t mask = 0, arrived = 0;
  void* lanes[32] = {};
};

struct Thread {
  Fiber fiber;
  uint3 index;
  std::vector<Copy> copies;  // those that have not landed
  int groups = 0;            // of copies, committed
  int barrier = -1;          // where it waits
  int64_t mbarrier = -1;     // likewise, a shared address
  bool ended = false;
};

struct Warp {
  uint32_t ready = 0, ended = 0;  // lanes
  uint32_t exists = 0;
  std::array<uint8_t, 32> lane_at, place_of;  // the order of lanes
  Meeting meetings[32];                       // by the lowest lane of the mask
};

struct Barrier {
  int arrived = 0, count = 0, sum = 0, result = 0;
};

struct Machine {
  std::mt19937_64 random;
  uint64_t seed = 0;
  bool early = false;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<int> warp_order;
  Barrier barriers[kBarriers];
  Fiber main;
  int running = 0, threads_of_block = 0, ended = 0;
  size_t shared_bytes = 0;
  char* shared = nullptr;
  uint32_t shared_base = 0;  // its shared address
  void (*thread)(const void*) = nullptr;
  const void* context = nullptr;
};
Machine machine;

Thread& self() { return machine.threads[machine.running]; }

/// The next lane of a warp that may run, from the running one on in the order of the warp; -1:
/// none.
int next_lane(const Warp& warp, int from_place) {
  if (warp.ready == 0) return -1;
  for (int i = 1; i <= 32; ++i) {
    const int lane = warp.lane_at[(from_place + i) % 32];
    if (warp.ready >> lane & 1) return lane;
  }
  return -1;
}

void describe_waiting() {
  for (int i = 0; i < machine.threads_of_block; ++i) {
    const Thread& t = machine.threads[i];
    if (t.ended || t.barrier < 0) continue;
    std::fprintf(stderr, "  thread %d is the first at barrier %d\n", i, t.barrier);
    break;
  }
  for (int i = 0; i < machine.threads_of_block; ++i) {
    const Thread& t = machine.threads[i];
    if (t.ended || t.mbarrier < 0) continue;
    if (i > 0 && machine.threads[i - 1].mbarrier == t.mbarrier) continue;  // a run of threads
    std::fprintf(stderr, "  thread %d waits at ", i);
    describe_mbarrier(static_cast<uint32_t>(t.mbarrier));
  }
  for (size_t w = 0; w < machine.warps.size(); ++w)
    for (const Meeting& m : machine.warps[w].meetings)
      if (m.arrived != 0)
        std::fprintf(stderr, "  warp %zu: lanes %08x of %08x are at %s\n", w, m.arrived, m.mask,
                     m.what);
}

void run_thread(int index) {
  Fiber& from = self().fiber;
  machine.running = index;
  threadIdx = self().index;
  switch_to(from, self().fiber);
}

/// Another thread of this warp, or of the next one that has any; -1: none may run.
int next_thread(bool leave_warp) {
  const int own = machine.running, own_warp = own / 32;
  Warp& warp = machine.warps[own_warp];
  int lane = leave_warp ? -1 : next_lane(warp, warp.place_of[own % 32]);
  if (lane >= 0) return own_warp * 32 + lane;
  const int count = static_cast<int>(machine.warps.size());
  const int first =
      static_cast<int>(std::find(machine.warp_order.begin(), machine.warp_order.end(), own_warp) -
                       machine.warp_order.begin());
  for (int i = 1; i <= count; ++i) {
    const int chosen = machine.warp_order[(first + i) % count];
    lane = next_lane(machine.warps[chosen], 31);
    if (lane >= 0) return chosen * 32 + lane;
  }
  return -1;
}
/// Gives way to it. Where there is none, copies land.
void give_way(bool leave_warp = false) {
  may_land();
  int next = next_thread(leave_warp);
  if (machine.ended == machine.threads_of_block) switch_to(self().fiber, machine.main);
  while (next < 0 && land_any()) next = next_thread(false);
  if (next < 0) {
    describe_waiting();
    fail("threads wait for what will not come");
  }
  if (next != machine.running) run_thread(next);
}

void set_ready(int index, bool ready) {
  uint32_t& lanes = machine.warps[index / 32].ready;
  const uint32_t bit = 1u << index % 32;
  lanes = ready ? lanes | bit : lanes & ~bit;
}

Barrier& reach(int id, int count, int value) {
  if (id < 0 || id >= kBarriers) fail("there is no barrier %d", id);
  Barrier& b = machine.barriers[id];
  if (b.arrived > 0 && b.count != count) fail("barrier %d: of %d and of %d", id, b.count, count);
  b.count = count;
  ++b.arrived;
  b.sum += value;
  return b;
}

/// Opens a barrier that all threads have reached; the running thread may be the last to arrive or
/// one that ends.
void open_if_complete(int id) {
  Barrier& b = machine.barriers[id];
  const int wanted = b.count > 0 ? b.count : machine.threads_of_block - machine.ended;
  if (b.arrived == 0 || b.arrived < wanted) return;
  if (b.arrived > wanted) fail("barrier %d: %d threads came, it is of %d", id, b.arrived, wanted);
  for (int i = 0; i < machine.threads_of_block; ++i) {
    Thread& t = machine.threads[i];
    if (t.barrier != id) continue;
    t.barrier = -1;
    set_ready(i, true);
  }
  b = {0, 0, 0, b.sum};
}

void main_of_thread() {
  machine.thread(machine.context);
  Thread& t = self();
  t.ended = true;
  ++machine.ended;
  set_ready(machine.running, false);
  Warp& warp = machine.warps[machine.running / 32];
  warp.ended |= 1u << machine.running % 32;
  for (const Meeting& m : warp.meetings)
    if (m.mask & warp.ended) fail("this thread has ended, other lanes wait for it at %s", m.what);
  for (int id = 0; id < kBarriers; ++id)
    if (machine.barriers[id].count == 0) open_if_complete(id);
  give_way();
}

/// Orders of warps and of the lanes of each, by the seed.
void choose_orders() {
  const auto arrange = [](auto& order) {
    std::iota(order.begin(), order.end(), 0);
    if (machine.seed == 1) std::reverse(order.begin(), order.end());
    if (machine.seed > 1) std::shuffle(order.begin(), order.end(), machine.random);
  };
  machine.warp_order.resize(machine.warps.size());
  arrange(machine.warp_order);
  for (Warp& warp : machine.warps) {
    arrange(warp.lane_at);
    for (int i = 0; i < 32; ++i) warp.place_of[warp.lane_at[i]] = static_cast<uint8_t>(i);
  }
}

void run_block(dim3 block) {
  const int count = machine.threads_of_block;
  machine.warps.assign((count + 31) / 32, Warp{});
  machine.ended = 0;
  std::fill(std::begin(machine.barriers), std::end(machine.barriers), Barrier{});
  choose_orders();
  machine.shared = begin_shared(machine.shared_bytes);
  machine.shared_base = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(machine.shared) % 1024);
  begin_async_memory(machine.shared_bytes);
  begin_products(static_cast<int>(machine.warps.size()));
  for (int i = 0; i < count; ++i) {
    Thread& t = machine.threads[i];
    t.index = make_uint3(i % block.x, i / block.x % block.y, i / block.x / block.y);
    t.copies.clear(), t.groups = 0, t.barrier = -1, t.mbarrier = -1, t.ended = false;
    begin_fiber(t.fiber, i, main_of_thread);
    machine.warps[i / 32].exists |= 1u << i % 32;
    set_ready(i, true);
  }
  const int first_warp = machine.warp_order[0];
  machine.running = first_warp * 32 + next_lane(machine.warps[first_warp], 31);
  threadIdx = self().index;
  switch_to(machine.main, self().fiber);
  end_flights();
  end_products();
  if (!end_shared(machine.shared_bytes)) fail("somebody wrote beside the dynamic shared memory");
}

}  // namespace

void land(const Copy& copy) {
  char* to = shared_at(copy.to, copy.size, "cp.async");
  if (reinterpret_cast<uintptr_t>(copy.from) % copy.size != 0)
    fail("cp.async: %p is no multiple of %d", copy.from, copy.size);
  std::memcpy(to, copy.from, copy.bytes);
  std::memset(to + copy.bytes, 0, copy.size - copy.bytes);
}

void fail(const char* format, ...) {
  std::fprintf(stderr, "emulated block (%u, %u, %u), thread (%u, %u, %u): ", blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

void set_order(uint64_t seed) {
  machine.seed = seed;
  machine.early = seed % 2 == 1;
  machine.random.seed(seed);
}

size_t shared_bytes_of_launch() { return machine.shared_bytes; }

void run_grid(dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(const void*),
              const void* context) {
  machine.threads_of_block = static_cast<int>(block.x * block.y * block.z);
  if (machine.threads_of_block > kMostFibers || shared_bytes > most_shared_bytes())
    fail("no block of %d threads with %zu bytes", machine.threads_of_block, shared_bytes);
  machine.threads.resize(std::max<size_t>(machine.threads.size(), machine.threads_of_block));
  machine.thread = thread, machine.context = context, machine.shared_bytes = shared_bytes;
  gridDim = grid, blockDim = block;
  const int64_t blocks = int64_t{grid.x} * grid.y * grid.z;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t at = machine.seed == 0 ? i : blocks - 1 - i;
    blockIdx =
        make_uint3(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                   static_cast<unsigned>(at / grid.x / grid.y));
    run_block(block);
  }
}

char* shared_memory() { return machine.shared; }
uint32_t shared_address(const void* p) {
  const ptrdiff_t offset = static_cast<const char*>(p) - machine.shared;
  if (offset < 0 || offset > static_cast<ptrdiff_t>(machine.shared_bytes))
    fail("address %td is not in the %zu bytes of dynamic shared memory", offset,
         machine.shared_bytes);
  return machine.shared_base + static_cast<uint32_t>(offset);
}
char* shared_at(uint32_t address, uint32_t bytes, const char* what) {
  const ptrdiff_t place = ptrdiff_t{address} - machine.shared_base;
  if (address % bytes != 0 || place < 0 || place + bytes > machine.shared_bytes)
    fail("%s: shared address %td of %zu bytes", what, place, machine.shared_bytes);
  return machine.shared + place;
}
unsigned lane() { return static_cast<unsigned>(machine.running % 32); }

void meet(const char* what, uint32_t mask, void* own, Perform perform) {
  const int index = machine.running;
  const uint32_t bit = 1u << index % 32;
  Warp& warp = machine.warps[index / 32];
  mask &= warp.exists;
  if (!(mask & bit)) fail("%s: the mask %08x does not name its own lane", what, mask);
  if (mask & warp.ended) fail("%s: lanes %08x have ended", what, mask & warp.ended);
  Meeting& m = warp.meetings[__builtin_ctz(mask)];
  if (m.arrived == 0) m.what = what, m.mask = mask;
  if (m.what != what || m.mask != mask)
    fail("%s of lanes %08x while lanes %08x are at %s of %08x", what, mask, m.arrived, m.what,
         m.mask);
  m.lanes[index % 32] = own;
  m.arrived |= bit;
  if (m.arrived != mask) {
    warp.ready &= ~bit;
    return give_way();
  }
  perform(m.lanes, mask);
  m.arrived = m.mask = 0;
  warp.ready |= mask;
  // Now and then another warp goes on.
  may_give_way();
}

int barrier(int id, int count, int value) {
  Barrier& b = reach(id, count, value);
  self().barrier = id;
  set_ready(machine.running, false);
  open_if_complete(id);
  give_way();
  return b.result;
}

void arrive_at_barrier(int id, int count) {
  reach(id, count, 0);
  open_if_complete(id);
}

int running_thread() { return machine.running; }
int threads_of_block() { return machine.threads_of_block; }
uint64_t order_seed() { return machine.seed; }
int random_below(int count) { return static_cast<int>(machine.random() % uint64_t(count)); }
bool now_and_then() { return machine.seed > 1 && machine.random() % 16 == 0; }
void may_give_way() {
  if (now_and_then()) give_way(true);
}
void sleep_at(uint32_t mbarrier) {
  self().mbarrier = mbarrier;
  set_ready(machine.running, false);
  give_way();
}
int wake_waiting(uint32_t mbarrier) {
  int woken = -1;
  for (int i = 0; i < machine.threads_of_block; ++i) {
    Thread& t = machine.threads[i];
    if (t.mbarrier != mbarrier) continue;
    t.mbarrier = -1;
    set_ready(i, true);
    woken = i;
  }
  return woken;
}
bool yields_on_wake() { return machine.seed == 1 || (machine.seed > 1 && random_below(2) == 0); }
void run_now(int thread) { run_thread(thread); }

void copy_async(uint32_t to, const void* from, int bytes, int size) {
  const Copy copy{to, from, bytes, size, self().groups};
  if (machine.early) return land(copy);
  shared_at(to, size, "cp.async");
  self().copies.push_back(copy);
}
void commit_copies() { ++self().groups; }
std::vector<Copy> take_copies() { return std::exchange(self().copies, {}); }
void wait_copies(int pending) {
  land_flights_of(machine.running);
  Thread& t = self();
  const auto late = [&](const Copy& copy) { return copy.group >= t.groups - pending; };
  const auto first_late = std::find_if(t.copies.begin(), t.copies.end(), late);
  std::for_each(t.copies.begin(), first_late, land);
  t.copies.erase(t.copies.begin(), first_late);
}

}  // namespace nsa::kernels::emulator
