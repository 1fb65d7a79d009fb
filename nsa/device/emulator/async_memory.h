// Shared memory as the async proxy sees it: wgmma and bulk copies read what they wrote themselves
// and what was there when a fence (fence.proxy.async) last let plain accesses through. A fence of
// any thread lets all of it through, so only a fence that nobody executes is missed.
#pragma once
#include <cstddef>
#include <cstdint>

namespace nsa::device::emulator {

void begin_async_memory(size_t bytes);
void fence_async();
/// What wgmma reads; by shared address.
const char* async_memory(uint32_t address, uint32_t bytes, const char* what);
/// Seen by both.
void write_async(uint32_t address, const void* from, uint32_t bytes);

/// Where a 16-byte piece lies when pieces of 128 bytes are swizzled by the rows of 1024.
constexpr uint32_t swizzle_128(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace nsa::device::emulator
