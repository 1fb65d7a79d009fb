#include "nsa/kernels/tests/emulator/flights.h"

#include <algorithm>
#include <utility>

#include "nsa/kernels/tests/emulator/async_memory.h"
#include "nsa/kernels/tests/emulator/emulator.h"
#include "nsa/kernels/tests/emulator/sm90/bulk_copies.h"
#include "nsa/kernels/tests/emulator/sm90/mbarrier.h"

namespace nsa::kernels::emulator {
namespace {

std::vector<Flight> flights;  // in the order they were begun

void land(const Flight& x) {
  switch (x.kind) {
    case Flight::kBox:
      copy_box(x.map, x.place, x.to);
      return bytes_have_come(x.mbarrier, x.map.bytes_of_box());
    case Flight::kBytes:
      write_async(x.to, x.from, x.bytes);
      return bytes_have_come(x.mbarrier, x.bytes);
    case Flight::kCopies:
      for (const Copy& copy : x.copies) land(copy);
      return arrive_at_address(x.mbarrier);
  }
}
void land_at(size_t i) {
  const Flight x = std::move(flights[i]);
  flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(i));
  land(x);
}

}  // namespace

void start_flight(Flight flight) {
  check_mbarrier(flight.mbarrier);
  flight.thread = running_thread();
  const uint64_t seed = order_seed();
  if (seed == 1 || (seed > 1 && random_below(2) == 0)) return land(flight);
  flights.push_back(std::move(flight));
}

void load_box(const void* map, const void* barrier, void* to, const int (&place)[4]) {
  Flight flight{};
  flight.kind = Flight::kBox;
  flight.map = map_of(map);
  if (flight.map.axes != 4) fail("a box of 4 axes of a tensor of %d", flight.map.axes);
  std::copy(place, place + 4, flight.place);
  flight.to = shared_address(to), flight.mbarrier = shared_address(barrier);
  start_flight(std::move(flight));
}
void load_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  if (bytes == 0 || bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    fail("a bulk copy of %u bytes from %p", bytes, from);
  Flight flight{};
  flight.kind = Flight::kBytes;
  flight.from = from, flight.bytes = bytes;
  flight.to = to, flight.mbarrier = barrier;
  start_flight(std::move(flight));
}

bool land_any() {
  if (flights.empty()) return false;
  land_at(order_seed() == 0 ? 0 : size_t(random_below(int(flights.size()))));
  return true;
}
void may_land() {
  if (!flights.empty() && now_and_then()) land_any();
}

void land_flights_of(int thread) {
  for (size_t i = 0; i < flights.size();) {
    if (flights[i].kind == Flight::kCopies && flights[i].thread == thread)
      land_at(i);
    else
      ++i;
  }
}

void end_flights() {
  for (const Flight& x : flights)
    if (x.kind != Flight::kCopies)
      fail("a block has ended before what it copies to shared address %u has landed", x.to);
  flights.clear();
}

}  // namespace nsa::kernels::emulator
