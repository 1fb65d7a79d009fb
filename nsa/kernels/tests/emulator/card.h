#pragma once
#include <cstddef>

namespace nsa::kernels::emulator {

/// The card that kernels are launched on and the runtime is asked about; three multiprocessors of
/// it, so that grids that depend on their number have CTAs with more than one item.
enum class Card { kA100, kH100 };
void set_card(Card card);  // kA100 until then

size_t most_shared_bytes();       // of a block
size_t shared_bytes_of_launch();  // that a block of the last launch had

}  // namespace nsa::kernels::emulator
