// Changing from one stack to another: some nanoseconds on x86-64, by way of ucontext elsewhere.
#include "nsa/kernels/tests/emulator/context_switch.h"

#include <cstdint>

#include "nsa/kernels/tests/emulator/emulator.h"
#include "nsa/kernels/tests/emulator/memory.h"

#ifndef __x86_64__
#include <ucontext.h>
#endif
// clang-tidy reads the commands of the sanitizers' build and has not their headers.
#if defined(__SANITIZE_ADDRESS__) && __has_include(<sanitizer/asan_interface.h>)
#define NSA_TELLS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace nsa::kernels::emulator {
namespace {

#ifdef NSA_TELLS_SANITIZER
Fiber* left = nullptr;  // the fiber before this one
void before_switch(void** own, Fiber& from, const Fiber& to) {
  left = &from;
  __sanitizer_start_switch_fiber(own, to.stack, to.stack_bytes);
}
void after_switch(void* own) {
  __sanitizer_finish_switch_fiber(own, &left->stack, &left->stack_bytes);
}
/// Frames of the thread that ended on this stack, which were never returned from.
void forget_frames(char* end) { __asan_unpoison_memory_region(end - 16384, 16384); }
#else
void before_switch(void**, Fiber&, const Fiber&) {}
void after_switch(void*) {}
void forget_frames(char*) {}
#endif

void (*main_of_fiber)() = nullptr;
void enter() {
  after_switch(nullptr);
  main_of_fiber();
  fail("a fiber returned");
}

}  // namespace

#ifdef __x86_64__

// Registers that a call must leave as they were go to the old stack and come from the new one. It
// ends by a jump: the processor would expect `ret` to go back to the fiber that it came from.
extern "C" void nsa_emulator_change_stack(void** from, void* to);
asm(R"(
.text
.type nsa_emulator_change_stack, @function
nsa_emulator_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rdx
  jmpq *%rdx
.size nsa_emulator_change_stack, .-nsa_emulator_change_stack
)");

void begin_fiber(Fiber& fiber, int i, void (*main)()) {
  main_of_fiber = main;
  fiber.stack = stack_of(i), fiber.stack_bytes = kStackBytes;
  forget_frames(stack_of(i) + kStackBytes);
  // Stacks begin at multiples of a page; the same place in each would share one set of the cache.
  auto* top = reinterpret_cast<uintptr_t*>(stack_of(i) + kStackBytes - i % 32 * 128);
  *--top = 0;  // where a call would have left its return address
  *--top = reinterpret_cast<uintptr_t>(&enter);
  fiber.stack_pointer = top - 6;  // registers
}

void switch_to(Fiber& from, Fiber& to) {
  void* own = nullptr;
  before_switch(&own, from, to);
  nsa_emulator_change_stack(&from.stack_pointer, to.stack_pointer);
  after_switch(own);
}

#else

void begin_fiber(Fiber& fiber, int i, void (*main)()) {
  main_of_fiber = main;
  fiber.stack = stack_of(i), fiber.stack_bytes = kStackBytes;
  forget_frames(stack_of(i) + kStackBytes);
  auto* context = static_cast<ucontext_t*>(fiber.stack_pointer);
  if (context == nullptr) fiber.stack_pointer = context = new ucontext_t;  // kept
  getcontext(context);
  context->uc_stack.ss_sp = stack_of(i), context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  makecontext(context, enter, 0);
}

void switch_to(Fiber& from, Fiber& to) {
  void* own = nullptr;
  if (from.stack_pointer == nullptr) from.stack_pointer = new ucontext_t;
  before_switch(&own, from, to);
  swapcontext(static_cast<ucontext_t*>(from.stack_pointer),
              static_cast<ucontext_t*>(to.stack_pointer));
  after_switch(own);
}

#endif

}  // namespace nsa::kernels::emulator
