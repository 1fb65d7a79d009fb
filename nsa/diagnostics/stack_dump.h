#pragma once

namespace nsa {

/// From now on SIGUSR1 writes the stack of every thread of this process to standard error, while it
/// goes on running: one block "== thread TID NAME ==" each, the thread that got the signal first.
/// Call once, from the main thread.
void install_stack_dump();

}  // namespace nsa
