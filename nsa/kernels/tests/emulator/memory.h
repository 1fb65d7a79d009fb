#pragma once
#include <cstddef>

namespace nsa::kernels::emulator {

/// Dynamic shared memory of a block: `bytes` of NaN that end, but for less than 128, at a page that
/// nobody may touch.
char* begin_shared(size_t bytes);
/// Whether what lies beside it is as it was.
bool end_shared(size_t bytes);

/// The lowest address of the stack of fiber i, below which lies a page that nobody may touch.
char* stack_of(int i);
constexpr size_t kStackBytes = 256 * 1024;
constexpr int kMostFibers = 1024;

}  // namespace nsa::kernels::emulator
