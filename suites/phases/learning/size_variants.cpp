#include "suites/phases/learning/size_variants.h"

#include <array>
#include <string_view>

#include "nsa/model/attention_variant.h"
#include "nsa/program/input_error.h"

namespace suites {
namespace {

struct SizeVariant {
  std::string_view name;
  void (*apply)(nsa::NsaConfig& c);
};

constexpr std::array<SizeVariant, 7> kVariants = {{
    {"half_top_n", [](nsa::NsaConfig& c) { c.top_n /= 2; }},
    {"double_top_n", [](nsa::NsaConfig& c) { c.top_n *= 2; }},
    {"half_window", [](nsa::NsaConfig& c) { c.window /= 2; }},
    {"double_window", [](nsa::NsaConfig& c) { c.window *= 2; }},
    {"double_blocks",
     [](nsa::NsaConfig& c) {
       c.block_size *= 2;
       c.block_stride *= 2;
       c.sel_block_size *= 2;
     }},
    {"double_kv_heads", [](nsa::NsaConfig& c) { c.num_kv_heads *= 2; }},
    {"softmax_gates", [](nsa::NsaConfig& c) { c.gate = nsa::GateActivation::kSoftmax; }},
}};

}  // namespace

nsa::ModelConfig with_variant(const nsa::ModelConfig& config, const std::string& variant) {
  for (const SizeVariant& size : kVariants) {
    if (size.name != variant) continue;
    nsa::ModelConfig changed = nsa::with_attention(config, "nsa");
    size.apply(changed.attention);
    changed.validate();
    return changed;
  }
  try {
    return nsa::with_attention(config, variant);
  } catch (const nsa::InputError&) {
    throw nsa::InputError("attention must be " + std::string(nsa::kAttentionVariants) + ", " +
                          kSizeVariants + ", got \"" + variant + "\"");
  }
}

}  // namespace suites
