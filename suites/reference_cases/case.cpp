#include "suites/reference_cases/case.h"

#include <set>
#include <stdexcept>

#include "suites/reference_cases/case_config.h"

namespace suites {
namespace {

namespace ref = nsa::reference;
[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument(what); }

/// The sizes a kind needs; the others keep their defaults.
ref::Config read_config(const CaseConfig& given) {
  using ref::Config;
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
  if (given.kind == "ranges") needed = {"lsel"};
  if (given.kind == "gates") needed = {"Hq", "Hkv", "dk"};

  Config config;
  for (const std::string& key : needed) config.*all.at(key) = given.size(key);
  config.phi =
      std::map<std::string, ref::Phi>{
          {"mean", ref::Phi::kMean}, {"conv", ref::Phi::kConv}, {"mlp", ref::Phi::kMlp}}
          .at(given.choice("phi", "mean"));
  config.rope = std::map<std::string, ref::Rope>{{"before_pool", ref::Rope::kBeforePool},
                                                 {"block_start", ref::Rope::kBlockStart},
                                                 {"none", ref::Rope::kNone}}
                    .at(given.choice("rope", "before_pool"));
  if (given.choice("rope_pairs", "interleaved") == "half_split")
    config.rope_pairs = ref::RopePairs::kHalfSplit;
  config.gate = std::map<std::string, ref::Gate>{{"none", ref::Gate::kNone},
                                                 {"sigmoid", ref::Gate::kSigmoid},
                                                 {"softmax", ref::Gate::kSoftmax}}
                    .at(given.choice("gate", "none"));
  config.rope_base = given.rope_base.value_or(config.rope_base);
  config.scale_cmp = given.scale("cmp");
  config.scale_sel = given.scale("sel");
  config.scale_win = given.scale("win");
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
}

void check_size(const char* key, const std::optional<int64_t>& given, int64_t want) {
  if (!given) fail(std::string("config: ") + key + " is missing");
  if (*given != want)
    fail(std::string("config: ") + key + " must be " + std::to_string(want) + ", got " +
         std::to_string(*given));
}

/// B and S of the metadata against the tensor that carries them.
void check_sizes(const CaseConfig& given, const ReferenceCase& c) {
  const ref::Shape& shape = c.kind == "topn"     ? c.scores.shape()
                            : c.kind == "ranges" ? c.block_idx.shape()
                                                 : c.inputs.q.shape();
  if (shape.size() < 2) fail("the input tensor of kind " + c.kind + " is missing");
  const bool packed = c.kind == "varlen";
  check_size("B", given.batch, packed ? 1 : shape[0]);
  check_size("S", given.tokens, packed ? shape[0] : shape[1]);
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

ReferenceCase make_case(TensorFile file) {
  if (!file.metadata.contains("config")) fail("metadata key 'config' is missing");
  const CaseConfig given = parse_case_config(file.metadata.at("config"));
  ReferenceCase c;
  c.name = given.name;
  c.kind = given.kind;
  if (!std::set<std::string>{"forward", "varlen", "decode", "topn", "ranges", "gates"}.contains(
          c.kind))
    fail("config: kind must be forward, varlen, decode, topn, ranges or gates, got '" + c.kind +
         "'");
  c.config = read_config(given);
  if (c.kind != "ranges" && c.kind != "gates") ref::validate(c.config);
  read_tensors(file, c);
  check_sizes(given, c);
  if (c.kind == "decode") {
    if (given.prefill.empty()) fail("config: prefill is missing");
    c.prefill = prefill_lengths(given.prefill, c.inputs.q.size(0), c.inputs.q.size(1));
  }
  return c;
}

ReferenceCase load_case(const std::filesystem::path& path) {
  TensorFile file = read_tensor_file(path);
  try {
    ReferenceCase c = make_case(std::move(file));
    if (c.expected.empty()) fail("no tensor 'expected.*': nothing to compare");
    return c;
  } catch (const std::exception& error) {
    throw std::invalid_argument(path.string() + ": " + error.what());
  }
}

}  // namespace suites
