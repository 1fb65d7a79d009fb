#pragma once
#include <c10/core/Device.h>

#include <string>

#include "nsa/layer/nsa_attention.h"

namespace nsa::train {

/// Options of the attention of a training run.
struct TrainingAttention {
  NsaOptions options;
  /// Branches that no switch decided and that were left to "auto": whatever applies may run.
  bool auto_sel = false, auto_cmp = false, auto_win = false;

  /// What to write beside what ran: "auto" for a branch that was left to it.
  std::string requested(const RanBackend& row) const;
};

/// `backend`: "auto": the project's own kernels of the device, CUDA or CPU, in every branch that no
/// switch decides; "fused": the CUDA kernels in all branches; "switches": by the switches
/// alone. A switch of the range conversion or of parity decides all branches that would leave it
/// out. Throws InputError for another word, and for "fused" beside a switch that asks for something
/// else.
TrainingAttention training_attention(const SwitchSet& switches, const std::string& backend,
                                     c10::Device device);

}  // namespace nsa::train
