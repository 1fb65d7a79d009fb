// Barriers in shared memory that count arrivals and bytes (mbarrier of PTX). A barrier is the eight
// bytes it is on a GPU: what is written over it is found when it is next used.
#pragma once
#include <cstdint>

namespace nsa::kernels::emulator {

void begin_mbarrier(const void* barrier, uint32_t arrivals);
/// One arrival; `bytes` more are to come in this phase.
void arrive_at_mbarrier(const void* barrier, uint32_t bytes = 0);
/// Arrives once the copies by cp.async that this thread has begun so far have landed (.noinc).
void arrive_with_copies(const void* barrier);
bool phase_is_over(const void* barrier, uint32_t parity);
/// Returns when the phase of this parity is over.
void wait_for_phase(const void* barrier, uint32_t parity);

/// For copies that land: by shared address.
void check_mbarrier(uint32_t address);
void bytes_have_come(uint32_t address, uint32_t bytes);
void arrive_at_address(uint32_t address);
void describe_mbarrier(uint32_t address);  // on stderr

}  // namespace nsa::kernels::emulator
