#include "nsa/model/attention_variant.h"

#include "nsa/program/strict_json.h"

namespace nsa {

ModelConfig with_attention(ModelConfig config, const std::string& variant) {
  if (variant.empty()) return config;
  const char* const without[] = {"no_compressed", "no_selected", "no_window"};
  config.attention_kind = variant == "dense" ? AttentionKind::kDense : AttentionKind::kNsa;
  config.projections.branch_on = {true, true, true};
  bool known = variant == "dense" || variant == "nsa";
  for (size_t branch = 0; branch < std::size(without); ++branch) {
    if (variant != without[branch]) continue;
    config.projections.branch_on[branch] = false;
    known = true;
  }
  if (!known)
    throw InputError("attention must be " + std::string(kAttentionVariants) + ", got \"" + variant +
                     "\"");
  config.validate();
  return config;
}

}  // namespace nsa
