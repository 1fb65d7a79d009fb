// Shared memory as the async proxy sees it: wgmma and bulk copies read what they wrote themselves
// and what was there when a fence (fence.proxy.async) last let plain accesses through. A fence of
// any thread lets all of it through, so only a fence that no thread executes is found missing.
//
// The other way round: what ldmatrix or a plain load (load_copied) has read may still be on the way
// when a bulk copy overwrites it, barriers or not, until such a fence, or until the warp's next
// product takes its operand A from registers.
#pragma once
#include <cstddef>
#include <cstdint>

namespace nsa::kernels::emulator {

void begin_async_memory(size_t bytes);
void fence_async();
/// What wgmma reads; by shared address.
const char* async_memory(uint32_t address, uint32_t bytes, const char* what);
/// Seen by both. Ends the program where loads may be on the way.
void write_async(uint32_t address, const void* from, uint32_t bytes);

/// The running warp loads these 16 bytes.
void begin_load(uint32_t address);
/// It uses what it has loaded.
void end_loads();

/// Where a 16-byte piece lies when pieces of 128 bytes are swizzled by the rows of 1024.
constexpr uint32_t swizzle_128(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

}  // namespace nsa::kernels::emulator
