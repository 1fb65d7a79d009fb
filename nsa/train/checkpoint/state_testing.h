#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "nsa/tensor_file/tensor_file.h"
#include "nsa/train/checkpoint/checkpoint_store.h"

namespace nsa::train {

using StateTensors = std::map<std::string, tensor_file::FileTensor>;

/// The tensors of a sharded checkpoint, of which the pieces are joined and flat.
inline StateTensors joined_shards(const std::filesystem::path& folder) {
  std::ifstream in(folder / "manifest.json");
  const auto manifest = nlohmann::json::parse(in);
  StateTensors all =
      tensor_file::read_tensor_file(folder / manifest["common"]["file"].get<std::string>()).tensors;
  for (const auto& shard : manifest["shards"]) {
    const auto file = tensor_file::read_tensor_file(folder / shard["file"].get<std::string>());
    for (const auto& [name, tensor] : file.tensors) {
      const auto piece = shard["pieces"][name.substr(name.find('.') + 1)];
      const size_t width = size_bytes(tensor.dtype);
      const size_t begin = piece[0].get<size_t>() * width;
      tensor_file::FileTensor& whole = all[name];
      whole.dtype = tensor.dtype;
      whole.bytes.resize(std::max(whole.bytes.size(), begin + tensor.bytes.size()));
      std::ranges::copy(tensor.bytes, whole.bytes.begin() + static_cast<std::ptrdiff_t>(begin));
      whole.shape = {static_cast<int64_t>(whole.bytes.size() / width)};
    }
  }
  return all;
}

/// The tensors of the checkpoint behind `step` in a folder, whole or sharded.
inline StateTensors state_at(const std::filesystem::path& dir, int64_t step) {
  const auto sharded = sharded_checkpoint_path(dir, step);
  return std::filesystem::exists(sharded)
             ? joined_shards(sharded)
             : tensor_file::read_tensor_file(checkpoint_path(dir, step)).tensors;
}

/// The checkpoints of two folders behind `step` hold the same bits, apart from the trace, which
/// holds times.
inline void expect_same_state(const std::filesystem::path& a, const std::filesystem::path& b,
                              int64_t step) {
  const StateTensors left = state_at(a, step), right = state_at(b, step);
  EXPECT_GT(left.size(), 40u);
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, tensor] : left) {
    const bool same = name == "trace" || tensor.bytes == right.at(name).bytes;
    EXPECT_TRUE(same) << name;
  }
}

}  // namespace nsa::train
