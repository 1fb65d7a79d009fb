// Copies into shared memory that an mbarrier waits for: tiles of tensors, runs of bytes, and what
// threads copy by cp.async. They land at once, when nothing else can go on, or at any time between,
// by the order's seed. Not for kernels.
#pragma once
#include <cstdint>
#include <vector>

#include "nsa/kernels/tests/emulator/sm90/tensor_map.h"
#include "nsa/kernels/tests/emulator/threads.h"

namespace nsa::kernels::emulator {

struct Flight {
  enum Kind { kBox, kBytes, kCopies } kind;
  uint32_t mbarrier, to;
  TensorMap map;         // kBox: its own, as the one it was begun with may be gone
  int place[kMostAxes];  // of the box in the tensor
  const void* from;      // kBytes
  uint32_t bytes;
  int thread;  // kCopies: whose
  std::vector<Copy> copies;
};

void start_flight(Flight flight);
/// One that has not landed lands; false: there is none.
bool land_any();
/// In random orders: one lands now and then.
void may_land();
/// All that this thread copied.
void land_flights_of(int thread);
/// A block has ended.
void end_flights();

}  // namespace nsa::kernels::emulator
