#pragma once
#include <c10/core/Device.h>

#include "nsa/backend/kernel_choice.h"

namespace nsa {

/// Facts of a device and of this build. A card is asked once a process.
const CardFacts& card_facts(c10::Device device);

/// What the kernels of this build are compiled for.
MachineCode built_machine_code();

}  // namespace nsa
