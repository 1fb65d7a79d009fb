#pragma once
#include <cstddef>

namespace nsa::kernels::emulator {

/// Dynamic shared memory of a block: `bytes` of NaN that end less than 128 bytes before an
/// inaccessible page.
char* begin_shared(size_t bytes);
/// Whether what lies beside it is as it was.
bool end_shared(size_t bytes);

/// The lowest address of the stack of fiber i; the page below is inaccessible.
char* stack_of(int i);
constexpr size_t kStackBytes = 256 * 1024;
constexpr int kMostFibers = 1024;

}  // namespace nsa::kernels::emulator
