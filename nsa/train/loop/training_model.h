#pragma once
#include "nsa/model/decoder.h"

namespace nsa::train {

/// A decoder to train on `device`: weights drawn from `seed`, masters in fp32 (fp64 where
/// `compute_type` is), products in `compute_type`.
Decoder training_model(const ModelConfig& config, uint64_t seed, at::ScalarType compute_type,
                       at::Device device, const NsaOptions& attention);

}  // namespace nsa::train
