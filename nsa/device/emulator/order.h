#pragma once
#include <cstdint>

namespace nsa::device::emulator {

/// The order in which blocks, warps and lanes run from now on, and when async copies land. 0:
/// ascending, a copy lands when its group is waited for; 1: descending, a copy lands at once;
/// others: random orders, late copies if even, early ones if odd.
void set_order(uint64_t seed);

}  // namespace nsa::device::emulator
