#pragma once
#include <string>

#include "nsa/model/model_config.h"

namespace suites {

/// Words of with_variant beyond those of nsa::with_attention, for messages.
inline constexpr const char* kSizeVariants =
    "half_top_n, double_top_n, half_window, double_window, double_blocks, double_kv_heads or "
    "softmax_gates";

/// The model with another attention (nsa::with_attention), or NSA with one size changed: selected
/// blocks, window, the three block sizes together, KV heads. Sizes alone differ, but with other KV
/// heads weights have other shapes, so first weights differ too. Throws InputError for another word
/// and for sizes that do not fit one another.
nsa::ModelConfig with_variant(const nsa::ModelConfig& config, const std::string& variant);

}  // namespace suites
