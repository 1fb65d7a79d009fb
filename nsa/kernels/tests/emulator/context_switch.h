#pragma once
#include <cstddef>

namespace nsa::kernels::emulator {

/// A stack and where on it to go on.
struct Fiber {
  void* stack_pointer = nullptr;
  const void* stack = nullptr;  // null: the program's own, until it was left once
  size_t stack_bytes = 0;
};

/// Makes fiber i begin with `main`, which never returns.
void begin_fiber(Fiber& fiber, int i, void (*main)());
/// Continues in `to`; returns when another fiber switches to `from`.
void switch_to(Fiber& from, Fiber& to);

}  // namespace nsa::kernels::emulator
