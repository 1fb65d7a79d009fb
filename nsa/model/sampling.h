#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/model/decoder.h"

namespace nsa {

/// How tokens are chosen from logits.
struct Sampling {
  int64_t tokens = 200;     ///< to make
  double temperature = 0;   ///< 0: the most likely token; else drawn from softmax(logits / it)
  uint64_t seed = 1;        ///< of the draws
  int64_t num_values = -1;  ///< only tokens below it; -1: all
};

/// Continues `prompt`, int64 [P] with P >= 1, token by token through the decode caches of an NSA
/// model -> int64 [tokens] on the CPU. Deterministic. Throws InputError for a dense model, which
/// has no cache, an empty prompt, and a temperature below 0.
at::Tensor sample_tokens(const Decoder& model, const at::Tensor& prompt, const Sampling& sampling);

}  // namespace nsa
