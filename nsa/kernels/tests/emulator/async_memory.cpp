#include "nsa/kernels/tests/emulator/async_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "nsa/kernels/tests/emulator/emulator.h"
#include "nsa/kernels/tests/emulator/threads.h"

namespace nsa::kernels::emulator {
namespace {

std::vector<char> view;
bool fenced = false;  // since the view was last brought up to date

std::vector<uint32_t> loads;  // of each 16 bytes: warps that may still be loading them, as bits
uint32_t loading = 0;         // all of these

uint32_t own_warp() { return 1u << running_thread() / 32; }

}  // namespace

void begin_async_memory(size_t bytes) {
  view.assign(bytes, static_cast<char>(0xff));
  fenced = false;
  loads.assign((bytes + 15) / 16, 0);
  loading = 0;
}
void fence_async() {
  fenced = true;
  if (loading != 0) std::fill(loads.begin(), loads.end(), 0);
  loading = 0;
}

void begin_load(uint32_t address) {
  loads[(shared_at(address, 16, "ldmatrix") - shared_memory()) / 16] |= own_warp();
  loading |= own_warp();
}
void end_loads() {
  if ((loading & own_warp()) == 0) return;
  for (uint32_t& warps : loads) warps &= ~own_warp();
  loading &= ~own_warp();
}

const char* async_memory(uint32_t address, uint32_t bytes, const char* what) {
  const ptrdiff_t place = shared_at(address, bytes, what) - shared_memory();
  if (fenced) std::memcpy(view.data(), shared_memory(), view.size());
  fenced = false;
  return view.data() + place;
}

void write_async(uint32_t address, const void* from, uint32_t bytes) {
  if (address % 16 != 0 || bytes % 16 != 0) fail("a copy of %u bytes to %u", bytes, address);
  for (uint32_t i = 0; i < bytes; i += 16) {
    char* const to = shared_at(address + i, 16, "a bulk copy");
    if (const uint32_t warps = loads[(to - shared_memory()) / 16]; warps != 0)
      fail(
          "a bulk copy overwrites what warp %d has just loaded: neither a fence of the async proxy "
          "nor "
          "a product since",
          __builtin_ctz(warps));
    std::memcpy(to, static_cast<const char*>(from) + i, 16);
    std::memcpy(view.data() + (to - shared_memory()), to, 16);
  }
}

}  // namespace nsa::kernels::emulator
