#include "nsa/config/config.h"

#include <array>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "nsa/config/projection_config.h"

namespace nsa {
namespace {

template <typename T>
[[noreturn]] void reject(const char* field, const std::string& rule, const T& value) {
  std::ostringstream text;
  text << "NsaConfig: " << field << " must be " << rule << ", got " << value;
  throw std::invalid_argument(text.str());
}

void require_at_least(const char* field, int64_t value, int64_t least) {
  if (!(value >= least)) reject(field, "at least " + std::to_string(least), value);
}

void require_divides(const char* field, int64_t value, const char* multiple_name,
                     int64_t multiple) {
  if (multiple % value != 0) {
    reject(field, std::string("a divisor of ") + multiple_name + " = " + std::to_string(multiple),
           value);
  }
}

void require_positive(const char* field, double value) {
  if (!(value > 0.0 && std::isfinite(value))) reject(field, "a positive finite number", value);
}

template <typename E, size_t N>
using Names = std::array<std::pair<E, const char*>, N>;

constexpr Names<Phi, 3> kPhiNames{{{Phi::kMean, "mean"}, {Phi::kConv, "conv"}, {Phi::kMlp, "mlp"}}};
constexpr Names<GateActivation, 3> kGateNames{{{GateActivation::kNone, "none"},
                                               {GateActivation::kSoftmax, "softmax"},
                                               {GateActivation::kSigmoid, "sigmoid"}}};
constexpr Names<RopeMode, 3> kRopeNames{{{RopeMode::kBeforePool, "before_pool"},
                                         {RopeMode::kBlockStart, "block_start"},
                                         {RopeMode::kNone, "none"}}};
constexpr Names<RopePairs, 2> kPairNames{
    {{RopePairs::kInterleaved, "interleaved"}, {RopePairs::kHalfSplit, "half_split"}}};
constexpr Names<GateProjection, 2> kGateProjectionNames{
    {{GateProjection::kMlp, "mlp"}, {GateProjection::kLinear, "linear"}}};

template <typename E, size_t N>
std::string name_of(const Names<E, N>& names, E value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  throw std::logic_error("enumerator without a name");
}

template <typename E, size_t N>
E parse(const char* field, const Names<E, N>& names, const std::string& text) {
  std::string choices;
  for (const auto& [value, name] : names) {
    if (text == name) return value;
    choices += (choices.empty() ? "" : ", ") + std::string(name);
  }
  reject(field, "one of " + choices, "'" + text + "'");
}

}  // namespace

std::string to_string(Phi phi) { return name_of(kPhiNames, phi); }
std::string to_string(GateActivation activation) { return name_of(kGateNames, activation); }
std::string to_string(RopeMode mode) { return name_of(kRopeNames, mode); }
std::string to_string(RopePairs pairs) { return name_of(kPairNames, pairs); }
Phi parse_phi(const std::string& text) { return parse("phi", kPhiNames, text); }
GateActivation parse_gate_activation(const std::string& text) {
  return parse("gate", kGateNames, text);
}
RopeMode parse_rope_mode(const std::string& text) { return parse("rope", kRopeNames, text); }
RopePairs parse_rope_pairs(const std::string& text) {
  return parse("rope_pairs", kPairNames, text);
}
std::string to_string(GateProjection projection) {
  return name_of(kGateProjectionNames, projection);
}
GateProjection parse_gate_projection(const std::string& text) {
  return parse("gate_projection", kGateProjectionNames, text);
}

void NsaConfig::validate() const {
  require_at_least("num_heads", num_heads, 1);
  require_at_least("num_kv_heads", num_kv_heads, 1);
  require_at_least("qk_head_dim", qk_head_dim, 1);
  require_at_least("v_head_dim", v_head_dim, 1);
  require_at_least("block_size", block_size, 1);
  require_at_least("block_stride", block_stride, 1);
  require_at_least("sel_block_size", sel_block_size, 1);
  require_at_least("top_n", top_n, 1);
  require_at_least("num_initial", num_initial, 0);
  require_at_least("num_local", num_local, 1);
  require_at_least("window", window, 0);
  require_divides("num_kv_heads", num_kv_heads, "num_heads", num_heads);
  require_divides("block_stride", block_stride, "block_size", block_size);
  require_divides("block_stride", block_stride, "sel_block_size", sel_block_size);
  if (!(block_size <= sel_block_size)) {
    reject("block_size", "at most sel_block_size = " + std::to_string(sel_block_size), block_size);
  }
  // Written as a difference: a sum of two large fields could overflow.
  if (!(num_initial <= top_n && num_local <= top_n - num_initial)) {
    reject("top_n",
           "at least num_initial + num_local = " + std::to_string(num_initial) + " + " +
               std::to_string(num_local),
           top_n);
  }
  if (rope != RopeMode::kNone && qk_head_dim % 2 != 0) {
    reject("qk_head_dim", "even unless rope is none", qk_head_dim);
  }
  require_positive("rope_base", rope_base);
  if (scale_cmp) require_positive("scale_cmp", *scale_cmp);
  if (scale_sel) require_positive("scale_sel", *scale_sel);
  if (scale_win) require_positive("scale_win", *scale_win);
}

int64_t NsaConfig::num_compressed(int64_t num_tokens) const {
  return num_tokens < block_size ? 0 : (num_tokens - block_size) / block_stride + 1;
}

int64_t NsaConfig::num_sel_blocks(int64_t num_tokens) const {
  return num_tokens / sel_block_size + (num_tokens % sel_block_size != 0 ? 1 : 0);
}

double NsaConfig::default_scale() const {
  return 1.0 / std::sqrt(static_cast<double>(qk_head_dim));
}

NsaConfig m7c_125m() { return NsaConfig{}; }

NsaConfig tiny_cpu() {
  NsaConfig config;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.qk_head_dim = 16;
  config.v_head_dim = 16;
  config.block_size = 8;
  config.block_stride = 4;
  config.sel_block_size = 16;
  config.top_n = 4;
  config.window = 32;
  return config;
}

}  // namespace nsa
