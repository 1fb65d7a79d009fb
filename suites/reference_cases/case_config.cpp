#include "suites/reference_cases/case_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "nsa/tensor_file/strict_parse.h"
#include "suites/reference_cases/tensor_files.h"

namespace suites {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;  // remarks may nest; nothing that is read here does
constexpr int64_t kMaxSize = int64_t{1} << 30;

const std::vector<std::string>& sizes() {
  static const std::vector<std::string> all = {"Hq",   "Hkv", "dk",        "dv",      "l", "d",
                                               "lsel", "n",   "n_initial", "n_local", "w", "K"};
  return all;
}

const std::map<std::string, std::vector<std::string>>& choices() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"phi", {"mean", "conv", "mlp"}},
      {"rope", {"before_pool", "block_start", "none"}},
      {"rope_pairs", {"interleaved", "half_split"}},
      {"gate", {"none", "softmax", "sigmoid"}}};
  return all;
}

const std::vector<std::string>& scales() {
  static const std::vector<std::string> all = {"scale", "scale_cmp", "scale_sel", "scale_win"};
  return all;
}

[[noreturn]] void fail_config(const std::string& what) {
  throw std::invalid_argument("config: " + what);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

int64_t whole_number(const std::string& key, const json& value) {
  if (!value.is_number_integer())
    fail_config(key + " must be a whole number, got " + excerpt(value));
  const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > kMaxSize;
  if (huge || value.get<int64_t>() < -kMaxSize)
    fail_config(key + " must be at most " + std::to_string(kMaxSize) + ", got " + excerpt(value));
  return value.get<int64_t>();
}

std::string text_of(const std::string& key, const json& value) {
  if (!value.is_string()) fail_config(key + " must be a text, got " + excerpt(value));
  return value.get<std::string>();
}

void read_cfg(const json& cfg, CaseConfig& config) {
  if (!cfg.is_object()) fail_config("cfg must be an object, got " + excerpt(cfg));
  for (const auto& [key, value] : cfg.items()) {
    if (std::ranges::find(sizes(), key) != sizes().end()) {
      config.sizes[key] = whole_number("cfg." + key, value);
    } else if (const auto known = choices().find(key); known != choices().end()) {
      const std::string word = value.is_string() ? value.get<std::string>() : "";
      if (std::ranges::find(known->second, word) == known->second.end())
        fail_config("cfg." + key + " has unknown value " + excerpt(value) + ", known are " +
                    joined(known->second));
      config.choices[key] = word;
    } else if (key == "rope_base") {
      if (!value.is_number()) fail_config("cfg.rope_base must be a number, got " + excerpt(value));
      config.rope_base = value.get<double>();
    } else if (std::ranges::find(scales(), key) != scales().end()) {
      const double scale = value.is_number() ? value.get<double>() : 0.0;
      if (!(scale > 0.0 && std::isfinite(scale)))
        fail_config("cfg." + key + " must be a positive number, got " + excerpt(value));
      config.scales[key] = scale;
    } else {
      fail_config("unknown key cfg." + excerpt(key) + " = " + excerpt(value) + ", known are " +
                  joined(sizes()) + ", phi, rope, rope_pairs, rope_base, gate, " +
                  joined(scales()));
    }
  }
}

json parse_object(const std::string& text) {
  json root;
  try {
    root = parse_strict(text, "text", kMaxDepth);
  } catch (const std::invalid_argument& error) {
    fail_config(error.what());
  }
  if (!root.is_object()) fail_config("must be an object, got " + excerpt(root));
  return root;
}

}  // namespace

int64_t CaseConfig::size(const std::string& key) const {
  const auto found = sizes.find(key);
  if (found == sizes.end()) fail_config("cfg." + key + " is missing");
  return found->second;
}

std::string CaseConfig::choice(const std::string& key, const std::string& fallback) const {
  const auto found = choices.find(key);
  return found == choices.end() ? fallback : found->second;
}

std::optional<double> CaseConfig::scale(const std::string& branch) const {
  for (const std::string& key : {"scale_" + branch, std::string("scale")})
    if (const auto found = scales.find(key); found != scales.end()) return found->second;
  return std::nullopt;
}

CaseConfig parse_case_config(const std::string& text, const std::string& overriding) {
  CaseConfig config;
  for (const std::string& source : {text, overriding}) {
    if (source.empty()) continue;
    const json root = parse_object(source);
    for (const auto& [key, value] : root.items()) {
      if (key == "name") config.name = text_of(key, value);
      if (key == "kind") config.kind = text_of(key, value);
      if (key == "B") config.batch = whole_number(key, value);
      if (key == "S") config.tokens = whole_number(key, value);
      if (key == "cfg") read_cfg(value, config);
      if (key != "prefill") continue;
      config.prefill.clear();
      for (const json& length : value.is_array() ? value : json::array({value}))
        config.prefill.push_back(whole_number(key, length));
    }
  }
  return config;
}

std::vector<int64_t> prefill_lengths(std::vector<int64_t> given, int64_t batch, int64_t tokens,
                                     const std::string& source) {
  const auto count = static_cast<size_t>(batch);
  if (given.size() == 1) given.assign(count, given[0]);
  if (given.size() != count)
    throw std::invalid_argument(source + " must be one number or B = " + std::to_string(batch) +
                                " numbers, got " + std::to_string(given.size()));
  for (const int64_t length : given)
    if (!(0 <= length && length <= tokens))
      throw std::invalid_argument(source + " must be in 0..S = " + std::to_string(tokens) +
                                  ", got " + std::to_string(length));
  return given;
}

}  // namespace suites
