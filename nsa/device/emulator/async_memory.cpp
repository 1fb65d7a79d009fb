#include "nsa/device/emulator/async_memory.h"

#include <cstring>
#include <vector>

#include "nsa/device/emulator/emulator.h"

namespace nsa::device::emulator {
namespace {

std::vector<char> view;
bool fenced = false;  // since the view was last brought up to date

}  // namespace

void begin_async_memory(size_t bytes) {
  view.assign(bytes, static_cast<char>(0xff));
  fenced = false;
}
void fence_async() { fenced = true; }

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
    std::memcpy(to, static_cast<const char*>(from) + i, 16);
    std::memcpy(view.data() + (to - shared_memory()), to, 16);
  }
}

}  // namespace nsa::device::emulator
