#include "nsa/kernels/tests/emulator/sm90/mbarrier.h"

#include <cstdio>
#include <cstring>
#include <utility>

#include "nsa/kernels/tests/emulator/emulator.h"
#include "nsa/kernels/tests/emulator/flights.h"
#include "nsa/kernels/tests/emulator/threads.h"

namespace nsa::kernels::emulator {
namespace {

constexpr uint64_t kBarrierMark = 2;  // memory of zeros or of NaN is no barrier
constexpr uint32_t kMost = (1 << 20) - 1;

struct Bits {
  uint64_t phase : 1;
  uint64_t arrivals : 20, missing : 20;  // of a phase, in this one
  uint64_t bytes : 20;                   // to come
  uint64_t unused : 1, mark : 2;
};

Bits read(uint32_t address) {
  Bits bits;
  std::memcpy(&bits, shared_at(address, 8, "mbarrier"), 8);
  if (bits.mark != kBarrierMark || bits.unused != 0 || bits.missing > bits.arrivals)
    fail("at shared address %u is no mbarrier", address);
  return bits;
}

/// The phase ends when all threads and bytes have arrived. Returns a thread that continues then, or
/// -1.
int write(uint32_t address, Bits bits) {
  const bool over = bits.missing == 0 && bits.bytes == 0;
  if (over) bits.phase ^= 1, bits.missing = bits.arrivals;
  std::memcpy(shared_at(address, 8, "mbarrier"), &bits, 8);
  return over ? wake_waiting(address) : -1;
}

/// Returns as `write` does.
int arrive(uint32_t address, uint32_t bytes) {
  Bits bits = read(address);
  if (bits.bytes + bytes > kMost) fail("mbarrier %u: more than 2^20 bytes", address);
  if (bits.missing == 0)
    fail("mbarrier %u: an arrival beyond the %u of its phase", address, unsigned(bits.arrivals));
  bits.bytes += bytes;
  --bits.missing;
  return write(address, bits);
}

}  // namespace

void begin_mbarrier(const void* barrier, uint32_t arrivals) {
  if (arrivals == 0 || arrivals > kMost) fail("an mbarrier of %u arrivals", arrivals);
  const Bits bits{0, arrivals, arrivals, 0, 0, kBarrierMark};
  std::memcpy(shared_at(shared_address(barrier), 8, "mbarrier.init"), &bits, 8);
}

void arrive_at_mbarrier(const void* barrier, uint32_t bytes) {
  const int woken = arrive(shared_address(barrier), bytes);
  if (woken >= 0 && yields_on_wake()) run_now(woken);
}
void arrive_at_address(uint32_t address) { arrive(address, 0); }
void arrive_with_copies(const void* barrier) {
  check_mbarrier(shared_address(barrier));
  Flight flight{};
  flight.mbarrier = shared_address(barrier);
  flight.kind = Flight::kCopies;
  flight.copies = take_copies();
  start_flight(std::move(flight));
}

bool phase_is_over(const void* barrier, uint32_t parity) {
  return read(shared_address(barrier)).phase != (parity & 1);
}
void wait_for_phase(const void* barrier, uint32_t parity) {
  if (phase_is_over(barrier, parity)) return may_give_way();
  while (!phase_is_over(barrier, parity)) sleep_at(shared_address(barrier));
}

void check_mbarrier(uint32_t address) { read(address); }
void bytes_have_come(uint32_t address, uint32_t bytes) {
  Bits bits = read(address);
  if (bits.bytes < bytes)
    fail("mbarrier %u: %u bytes land, it waits for %u more", address, bytes, unsigned(bits.bytes));
  bits.bytes -= bytes;
  write(address, bits);
}

void describe_mbarrier(uint32_t address) {
  const Bits bits = read(address);
  std::fprintf(stderr, "mbarrier %u, in phase %u, misses %u of %u arrivals and %u bytes\n", address,
               unsigned(bits.phase), unsigned(bits.missing), unsigned(bits.arrivals),
               unsigned(bits.bytes));
}

}  // namespace nsa::kernels::emulator
