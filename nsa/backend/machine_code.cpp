// By itself, as the list of architectures is a definition of this file.
#include "nsa/backend/card_facts.h"

namespace nsa {

MachineCode built_machine_code() {
  static const MachineCode code = machine_code_of(NSA_CUDA_ARCHITECTURES);
  return code;
}

}  // namespace nsa
