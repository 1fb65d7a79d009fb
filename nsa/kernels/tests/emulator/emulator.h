// Runs CUDA kernels on the CPU, for their tests: sources are compiled as C++, every thread of a
// block is a fiber, blocks run one after the other. Threads change places at meeting points only:
// collectives of a warp, barriers of the block and mbarriers. What a GPU leaves undefined stops the
// program with a message: a collective that a named lane does not reach, threads that wait for each
// other, access past dynamic shared memory (guard pages; a few bytes beside it are checked when the
// block ends), misaligned matrices and copies. Shared memory begins as NaN.
//
// Not seen: races between meeting points where every order that is tried gives the same bits, reads
// of what an earlier block has left in static shared memory, bank conflicts, registers, time.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace nsa::kernels::emulator {

/// Ends the program with a message that names the block and the thread.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Runs `thread(context)` for every thread of the grid.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(const void*),
              const void* context);
constexpr size_t kMostSharedBytes = 232448;  // of a block on any card (card.h)

/// Dynamic shared memory of the running block; addresses as instructions have them count from it.
char* shared_memory();
uint32_t shared_address(const void* p);
/// The `bytes` at a shared address, a multiple of `bytes`.
char* shared_at(uint32_t address, uint32_t bytes, const char* what);

/// A collective of the lanes in `mask`: the last one to arrive performs it on what all of them
/// brought. `what` names it: lanes that meet must have the same.
using Perform = void (*)(void* const (&lanes)[32], uint32_t mask);
void meet(const char* what, uint32_t mask, void* own, Perform perform);

/// Returns when `count` threads are at barrier `id`; 0: all of the block that have not ended. Adds
/// `value` to the sum that is returned to all of them.
int barrier(int id, int count, int value = 0);
constexpr int kBarriers = 16;
/// The same without waiting.
void arrive_at_barrier(int id, int count);

/// Asynchronous copies of this thread; `bytes` of the `size` are read, the rest is 0.
void copy_async(uint32_t to, const void* from, int bytes, int size = 16);
void commit_copies();
void wait_copies(int pending);

/// The place of the running thread in its warp.
unsigned lane();

}  // namespace nsa::kernels::emulator

/// Of the running thread, as in CUDA.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
