#include "suites/reference_cases/case.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace suites {
namespace {

namespace ref = nsa::reference;
using nlohmann::json;

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument(what); }

int64_t integer(const json& object, const std::string& key) {
  if (!object.contains(key)) fail("config: " + key + " is missing");
  if (!object[key].is_number_integer())
    fail("config: " + key + " must be a whole number, got " + object[key].dump());
  return object[key].get<int64_t>();
}

template <class E>
E choice(const json& object, const std::string& key, const std::map<std::string, E>& choices,
         E fallback) {
  if (!object.contains(key)) return fallback;
  const auto found =
      object[key].is_string() ? choices.find(object[key].get<std::string>()) : choices.end();
  if (found == choices.end())
    fail("config: cfg." + key + " has unknown value " + object[key].dump());
  return found->second;
}

/// The sizes a kind needs; the others keep their defaults.
ref::Config read_config(const json& cfg, const std::string& kind) {
  using Config = ref::Config;
  const std::map<std::string, int64_t Config::*> all = {{"Hq", &Config::num_heads},
                                                        {"Hkv", &Config::num_kv_heads},
                                                        {"dk", &Config::qk_head_dim},
                                                        {"dv", &Config::v_head_dim},
                                                        {"l", &Config::block_size},
                                                        {"d", &Config::block_stride},
                                                        {"lsel", &Config::sel_block_size},
                                                        {"n", &Config::top_n},
                                                        {"n_initial", &Config::n_initial},
                                                        {"n_local", &Config::n_local},
                                                        {"w", &Config::window}};
  std::set<std::string> needed;
  for (const auto& [key, _] : all) needed.insert(key);
  if (kind == "ranges") needed = {"lsel"};
  if (kind == "gates") needed = {"Hq", "Hkv", "dk"};

  Config config;
  for (const std::string& key : needed) config.*all.at(key) = integer(cfg, key);
  for (const auto& [key, value] : cfg.items()) {
    const bool text = key == "phi" || key == "rope" || key == "gate";
    if (!all.contains(key) && !text && key != "rope_base" && key != "K")
      fail("config: unknown key cfg." + key + " = " + value.dump());
  }
  config.phi = choice<ref::Phi>(
      cfg, "phi", {{"mean", ref::Phi::kMean}, {"conv", ref::Phi::kConv}, {"mlp", ref::Phi::kMlp}},
      ref::Phi::kMean);
  config.rope = choice<ref::Rope>(cfg, "rope",
                                  {{"before_pool", ref::Rope::kBeforePool},
                                   {"block_start", ref::Rope::kBlockStart},
                                   {"none", ref::Rope::kNone}},
                                  ref::Rope::kBeforePool);
  config.gate = choice<ref::Gate>(cfg, "gate",
                                  {{"none", ref::Gate::kNone},
                                   {"sigmoid", ref::Gate::kSigmoid},
                                   {"softmax", ref::Gate::kSoftmax}},
                                  ref::Gate::kNone);
  if (cfg.contains("rope_base")) {
    if (!cfg["rope_base"].is_number())
      fail("config: cfg.rope_base must be a number, got " + cfg["rope_base"].dump());
    config.rope_base = cfg["rope_base"].get<double>();
  }
  return config;
}

/// Every input tensor by its name in the file.
std::map<std::string, ref::Tensor<double>*> tensors_of(ReferenceCase& c) {
  ref::Inputs& x = c.inputs;
  std::map<std::string, ref::Tensor<double>*> all;
  if (c.kind == "topn") return {{"scores", &c.scores}};
  if (c.kind == "ranges") return {};
  all["q"] = &x.q;
  if (c.kind == "gates") {
    ref::GateMlpWeights& w = c.gate_mlp;
    all.insert({{"w1", &w.w1}, {"b1", &w.b1}, {"w2", &w.w2}, {"b2", &w.b2}});
    return all;
  }
  all.insert({{"k_cmp_src", &x.k_cmp_src},
              {"v_cmp_src", &x.v_cmp_src},
              {"k_sel", &x.k_sel},
              {"v_sel", &x.v_sel},
              {"k_win", &x.k_win},
              {"v_win", &x.v_win},
              {"d_o", &c.d_o}});
  all[c.config.gate == ref::Gate::kNone ? "gates" : "gate_logits"] = &x.gates;
  for (const auto& [suffix, phi] : {std::pair{"k", &x.phi_k}, std::pair{"v", &x.phi_v}}) {
    const std::string mlp = std::string("phi_") + suffix + ".";
    all[std::string("conv_") + suffix] = &phi->conv;
    all.insert({{mlp + "pe", &phi->pe},
                {mlp + "w1", &phi->w1},
                {mlp + "b1", &phi->b1},
                {mlp + "w2", &phi->w2},
                {mlp + "b2", &phi->b2}});
  }
  return all;
}

void read_tensors(TensorFile& file, ReferenceCase& c) {
  const auto known = tensors_of(c);
  for (auto& [name, tensor] : file.tensors) {
    if (name.starts_with("expected.")) {
      c.expected[name.substr(9)] = std::move(tensor);
    } else if (known.contains(name)) {
      *known.at(name) = as_doubles(tensor);
    } else if (name == "block_idx" && c.kind == "ranges") {
      c.block_idx = as_indices(tensor);
    } else if (name == "cu_seqlens" && c.kind == "varlen") {
      for (const int64_t value : to_integers(tensor))
        c.cu_seqlens.push_back(static_cast<int32_t>(value));
    } else {
      fail("unknown input tensor '" + name + "' for kind " + c.kind);
    }
  }
  if (c.expected.empty()) fail("no tensor 'expected.*': nothing to compare");
}

/// B and S of the metadata against the tensor that carries them.
void check_sizes(const json& meta, const ReferenceCase& c) {
  const ref::Shape& shape = c.kind == "topn"     ? c.scores.shape()
                            : c.kind == "ranges" ? c.block_idx.shape()
                                                 : c.inputs.q.shape();
  if (shape.size() < 2) fail("the input tensor of kind " + c.kind + " is missing");
  const bool packed = c.kind == "varlen";
  const int64_t B = packed ? 1 : shape[0], S = packed ? shape[0] : shape[1];
  if (integer(meta, "B") != B)
    fail("config: B must be " + std::to_string(B) + ", got " + meta["B"].dump());
  if (integer(meta, "S") != S)
    fail("config: S must be " + std::to_string(S) + ", got " + meta["S"].dump());
}

ReferenceCase read_case(TensorFile& file) {
  if (!file.metadata.contains("config")) fail("metadata key 'config' is missing");
  const json meta = json::parse(file.metadata.at("config"));
  if (!meta.is_object() || !meta.value("cfg", json()).is_object())
    fail("config: must be an object with an object 'cfg'");
  ReferenceCase c;
  c.name = meta.value("name", "");
  c.kind = meta.value("kind", "");
  if (!std::set<std::string>{"forward", "varlen", "decode", "topn", "ranges", "gates"}.contains(
          c.kind))
    fail("config: kind must be forward, varlen, decode, topn, ranges or gates, got '" + c.kind +
         "'");
  c.config = read_config(meta["cfg"], c.kind);
  if (c.kind != "ranges" && c.kind != "gates") ref::validate(c.config);
  read_tensors(file, c);
  check_sizes(meta, c);
  if (c.kind == "decode") {
    const int64_t prefill = integer(meta, "prefill"), S = c.inputs.q.size(1);
    if (!(0 <= prefill && prefill <= S))
      fail("config: prefill must be in 0.." + std::to_string(S) + ", got " +
           std::to_string(prefill));
    c.prefill.assign(static_cast<size_t>(c.inputs.q.size(0)), prefill);
  }
  return c;
}

}  // namespace

ref::Tensor<double> as_doubles(const FileTensor& tensor) {
  return {tensor.shape, to_doubles(tensor)};
}

ref::Tensor<int32_t> as_indices(const FileTensor& tensor) {
  std::vector<int32_t> values;
  for (const int64_t value : to_integers(tensor)) {
    if (value != static_cast<int32_t>(value))
      fail("index " + std::to_string(value) + " does not fit int32");
    values.push_back(static_cast<int32_t>(value));
  }
  return {tensor.shape, std::move(values)};
}

ReferenceCase load_case(const std::filesystem::path& path) {
  TensorFile file = read_tensor_file(path);
  try {
    return read_case(file);
  } catch (const std::exception& error) {
    throw std::invalid_argument(path.string() + ": " + error.what());
  }
}

}  // namespace suites
