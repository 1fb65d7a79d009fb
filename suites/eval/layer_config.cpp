#include "suites/eval/layer_config.h"

#include <array>
#include <stdexcept>

#include "nsa/program/input_error.h"

namespace suites::eval {
namespace {

using nsa::NsaConfig;

struct Field {
  const char* key;   ///< in the file
  const char* name;  ///< in messages of NsaConfig
  int64_t NsaConfig::* member;
};
// A name that ends like another stands before it, so that replacing names goes right.
constexpr std::array<Field, 11> kFields = {{
    {"Hkv", "num_kv_heads", &NsaConfig::num_kv_heads},
    {"Hq", "num_heads", &NsaConfig::num_heads},
    {"dk", "qk_head_dim", &NsaConfig::qk_head_dim},
    {"dv", "v_head_dim", &NsaConfig::v_head_dim},
    {"lsel", "sel_block_size", &NsaConfig::sel_block_size},
    {"l", "block_size", &NsaConfig::block_size},
    {"d", "block_stride", &NsaConfig::block_stride},
    {"n", "top_n", &NsaConfig::top_n},
    {"n_initial", "num_initial", &NsaConfig::num_initial},
    {"n_local", "num_local", &NsaConfig::num_local},
    {"w", "window", &NsaConfig::window},
}};

/// Smallest sizes that fit the given ones; they matter to no operator that does not need them.
NsaConfig unneeded_sizes(const CaseConfig& given) {
  const auto size = [&](const char* key, int64_t fallback) {
    const auto found = given.sizes.find(key);
    return found == given.sizes.end() ? fallback : found->second;
  };
  NsaConfig config;
  config.num_kv_heads = 1;
  config.num_heads = size("Hkv", 1);
  config.qk_head_dim = 2;
  config.v_head_dim = 1;
  config.block_stride = 1;
  config.block_size = size("d", 1);
  config.sel_block_size = size("l", size("d", 1));
  config.num_initial = 0;
  config.num_local = 1;
  config.top_n = size("n_initial", 0) + size("n_local", 1);
  config.window = 1;
  return config;
}

std::string in_words_of_the_file(std::string text) {
  constexpr std::string_view kPrefix = "NsaConfig: ";
  if (text.starts_with(kPrefix)) text.erase(0, kPrefix.size());
  for (const Field& field : kFields)
    for (size_t at = 0; (at = text.find(field.name, at)) != std::string::npos;)
      text.replace(at, std::string(field.name).size(), std::string("cfg.") + field.key);
  return text;
}

}  // namespace

NsaConfig layer_config(const CaseConfig& given) {
  try {
    NsaConfig config = unneeded_sizes(given);
    for (const Field& field : kFields)
      if (const auto found = given.sizes.find(field.key); found != given.sizes.end())
        config.*field.member = found->second;
    config.phi = nsa::parse_phi(given.choice("phi", "mean"));
    config.rope = nsa::parse_rope_mode(given.choice("rope", "before_pool"));
    config.rope_pairs = nsa::parse_rope_pairs(given.choice("rope_pairs", "interleaved"));
    config.gate = nsa::parse_gate_activation(given.choice("gate", "none"));
    config.rope_base = given.rope_base.value_or(config.rope_base);
    config.scale_cmp = given.scale("cmp");
    config.scale_sel = given.scale("sel");
    config.scale_win = given.scale("win");
    config.validate();
    return config;
  } catch (const std::invalid_argument& error) {
    throw nsa::InputError("config: " + in_words_of_the_file(error.what()));
  }
}

}  // namespace suites::eval
