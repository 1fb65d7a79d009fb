#pragma once
#include "nsa/kernels/decode/decode_attention.h"
#include "nsa/kernels/decode/decode_launch.h"

namespace nsa::kernels {

/// What a card offers a decode step.
struct DecodeCard {
  int num_sms = 0;
  int shared_bytes = 0;        ///< of one block of threads at most
  int shared_bytes_of_sm = 0;  ///< of all that run on an SM
  bool clusters = false;       ///< sm_90
};

/// How a step is cut; ranks = 0 where its logits fit no cut. Pure: depends on its arguments only.
portable::DecodePlan plan_decode(const DecodeAttention& problem, const DecodeCard& card);

}  // namespace nsa::kernels
