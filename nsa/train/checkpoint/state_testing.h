#pragma once
#include <gtest/gtest.h>

#include <filesystem>

#include "nsa/tensor_file/tensor_file.h"

namespace nsa::train {

/// Two checkpoints hold the same bits, apart from the trace, which holds times.
inline void expect_same_state(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto left = tensor_file::read_tensor_file(a).tensors;
  const auto right = tensor_file::read_tensor_file(b).tensors;
  EXPECT_GT(left.size(), 40u);
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, tensor] : left) {
    const bool same = name == "trace" || tensor.bytes == right.at(name).bytes;
    EXPECT_TRUE(same) << name;
  }
}

}  // namespace nsa::train
