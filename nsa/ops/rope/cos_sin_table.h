#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// cos and sin of the rotary angles at positions 0, 1, .. on a CUDA device: fp32 [>= num_tokens,
/// dim / 2, 2], angles in fp64, rounded once. Made once for device, dim and base, again
/// when more tokens come, and kept as long as the process, since graphs hold its address; 4 dim
/// bytes a token. Making it waits for the stream. Within a graph's capture a table that does not
/// exist yet belongs to that graph alone.
at::Tensor cos_sin_table(int64_t num_tokens, int64_t dim, double base, at::Device device);

}  // namespace nsa
