#pragma once
#include <string>

#include "nsa/model/model_config.h"

namespace nsa {

/// Words of with_attention.
inline constexpr const char* kAttentionVariants =
    "nsa, dense, no_compressed, no_selected or no_window";

/// The model with another attention and every other size, parameter name and first weight the same:
/// nsa (all branches), dense (its dense counterpart), or NSA without one branch, whose gate is 0
/// for every token. "": as it is. Throws InputError for another word.
ModelConfig with_attention(ModelConfig config, const std::string& variant);

}  // namespace nsa
