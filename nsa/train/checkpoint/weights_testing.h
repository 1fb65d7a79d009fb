#pragma once
// Random weights of a small model of the NSA-1B family under the names of its files, for tests.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "nsa/tensor_file/tensor_file.h"

namespace nsa::train {

/// Two layers, 64 wide, 4 query and 2 KV heads of 16, l = d = l' = 8. `keys`: others of the model;
/// `attention`: others of its attention.
inline nlohmann::json small_family_model(
    const nlohmann::json& keys = nlohmann::json::object(),
    const nlohmann::json& attention = nlohmann::json::object()) {
  nlohmann::json model = {{"name", "family"},
                          {"vocab", 300},
                          {"dim", 64},
                          {"num_layers", 2},
                          {"mlp_hidden", 96},
                          {"seq_len", 64},
                          {"norm_eps", 1e-5},
                          {"tied_head", true},
                          {"attention",
                           {{"num_heads", 4},
                            {"num_kv_heads", 2},
                            {"qk_head_dim", 16},
                            {"v_head_dim", 16},
                            {"block_size", 8},
                            {"block_stride", 8},
                            {"sel_block_size", 8},
                            {"top_n", 4},
                            {"window", 12},
                            {"gate", "sigmoid"},
                            {"gate_projection", "linear"},
                            {"shared_kv", true},
                            {"rope_base", 5e5},
                            {"rope_pairs", "half_split"}}}};
  model.update(keys);
  model["attention"].update(attention);
  return model;
}

/// The shapes of its tensors.
inline std::map<std::string, std::vector<int64_t>> small_family_shapes() {
  std::map<std::string, std::vector<int64_t>> shapes = {{"model.embed_tokens.weight", {300, 64}},
                                                        {"model.norm.weight", {64}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    shapes[layer + "input_layernorm.weight"] = {64};
    shapes[layer + "post_attention_layernorm.weight"] = {64};
    shapes[attention + "q_proj.weight"] = {64, 64};
    shapes[attention + "k_proj.weight"] = {32, 64};
    shapes[attention + "v_proj.weight"] = {32, 64};
    shapes[attention + "g_proj.weight"] = {12, 64};
    shapes[attention + "o_proj.weight"] = {64, 64};
    shapes[mlp + "gate_proj.weight"] = {96, 64};
    shapes[mlp + "up_proj.weight"] = {96, 64};
    shapes[mlp + "down_proj.weight"] = {64, 96};
  }
  return shapes;
}

/// Normal values: matrices of deviation 0.15, norms of 0.3 around 1.
inline tensor_file::TensorFile random_family_weights(
    uint64_t seed, tensor_file::Dtype dtype = tensor_file::Dtype::kF32) {
  std::mt19937_64 generator(seed);
  tensor_file::TensorFile file;
  file.metadata["format"] = "pt";
  for (const auto& [name, shape] : small_family_shapes()) {
    const bool is_norm = shape.size() == 1;
    std::normal_distribution<double> normal(is_norm ? 1.0 : 0.0, is_norm ? 0.3 : 0.15);
    std::vector<double> values(static_cast<size_t>(shape[0] * (is_norm ? 1 : shape[1])));
    std::generate(values.begin(), values.end(), [&] { return normal(generator); });
    file.tensors[name] = tensor_file::from_doubles(shape, values, dtype);
  }
  return file;
}

/// The tensors in two files of `folder` beside their index.
inline void write_shards(const std::filesystem::path& folder, const tensor_file::TensorFile& all) {
  std::filesystem::create_directories(folder);
  const std::string names[] = {"model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors"};
  tensor_file::TensorFile shards[2];
  nlohmann::json index = {{"metadata", {{"total_size", 0}}}};
  size_t next = 0;
  for (const auto& [name, tensor] : all.tensors) {
    shards[next].tensors[name] = tensor;
    index["weight_map"][name] = names[next];
    next = 1 - next;
  }
  for (size_t i = 0; i < 2; ++i) tensor_file::write_tensor_file(folder / names[i], shards[i]);
  std::ofstream(folder / "model.safetensors.index.json") << index.dump();
}

}  // namespace nsa::train
