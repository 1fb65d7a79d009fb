#pragma once
// Shared by the tests of this folder.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "nsa/decode/modes.h"
#include "nsa/decode/sequential.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/ops/common/test_util.h"

namespace nsa {

[[maybe_unused]] inline const bool kOneThread = (at::set_num_threads(1), true);

/// As error_of, for any exception.
inline std::string error_of_any(const std::function<void()>& call) {
  try {
    return error_of(call);
  } catch (const std::exception& error) {
    return error.what();
  }
}

inline NsaConfig small() {
  NsaConfig c;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 16, c.top_n = 3, c.window = 12;
  return c;
}

/// The same within 1e-12; ids bit for bit.
inline void expect_same(const NsaOutputs& have, const NsaOutputs& want) {
  ASSERT_TRUE(at::equal(have.block_idx, want.block_idx));
  ASSERT_TRUE(at::equal(have.ranges, want.ranges));
  for (const auto member :
       {&NsaOutputs::q_rot, &NsaOutputs::o_cmp, &NsaOutputs::o_sel, &NsaOutputs::o_win,
        &NsaOutputs::o, &NsaOutputs::lse_cmp, &NsaOutputs::lse_sel, &NsaOutputs::lse_win,
        &NsaOutputs::scores, &NsaOutputs::gates}) {
    expect_near(have.*member, want.*member, 1e-12);
  }
}

}  // namespace nsa
