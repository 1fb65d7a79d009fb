#include "nsa/train/loop/training_model.h"

#include <ATen/Context.h>

namespace nsa::train {

Decoder training_model(const ModelConfig& config, uint64_t seed, at::ScalarType compute_type,
                       at::Device device, const NsaOptions& attention) {
  at::manual_seed(seed);
  Decoder model(config);
  model->to(device, compute_type == at::kDouble ? at::kDouble : at::kFloat);
  model->compute_type = compute_type;
  model->set_attention_options(attention);
  return model;
}

}  // namespace nsa::train
