#pragma once
#include "suites/conformance/case_config.h"
#include "suites/conformance/dense_formulation.h"
#include "suites/phases/phase.h"

/// Sizes and inputs of the phases that time attention itself.
namespace suites {

/// args Hq, Hkv and dk (= dv) over these defaults; l, d, l', n and w of the paper and of m7c_125m;
/// phi mean, softmax gates, RoPE before pooling. One sequence; tokens are the caller's.
CaseConfig attention_sizes(const Args& args, int64_t num_heads, int64_t num_kv_heads,
                           int64_t head_dim);

/// The same from a model's configuration.
CaseConfig attention_sizes(const nsa::NsaConfig& config, int64_t batch, int64_t tokens);

/// Normal inputs made on the device: at long contexts the host would take longer than the work.
DenseInputs draw_inputs(const CaseConfig& config, at::ScalarType type, at::Device device,
                        uint64_t seed);

/// Tokens begin .. begin + count of every tensor with a token axis; views.
DenseInputs narrow_tokens(const DenseInputs& inputs, int64_t begin, int64_t count);

}  // namespace suites
