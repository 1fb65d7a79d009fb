#include "suites/bench/users/user_case.h"

namespace suites {
namespace {

/// Sizes of the paper at 8192 tokens.
CaseConfig usual_sizes(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim) {
  CaseConfig c;
  c.tokens = 8192;
  c.num_heads = num_heads, c.num_kv_heads = num_kv_heads;
  c.qk_head_dim = c.v_head_dim = head_dim;
  c.block_size = 32, c.block_stride = 16, c.sel_block_size = 64, c.top_n = 16;
  c.window = 512;
  c.gate = GateKind::kSigmoid;
  c.rope = RopeKind::kNone;
  return c;
}

CaseConfig nsa_1b() {
  CaseConfig c = usual_sizes(32, 2, 64);
  c.block_size = c.block_stride = c.sel_block_size = 16;
  c.window = 128;
  return c;
}

CaseConfig long_blocks() {
  CaseConfig c = usual_sizes(64, 4, 128);
  c.sel_block_size = 128;
  return c;
}

}  // namespace

std::vector<UserCase> user_cases() {
  return {{"nsa1b_8k", nsa_1b()},
          {"g2_8k", usual_sizes(32, 16, 128)},
          {"g8_8k", usual_sizes(32, 4, 128)},
          {"g32_8k", usual_sizes(64, 2, 128)},
          {"dim96_8k", usual_sizes(32, 4, 96)},
          {"dim256_8k", usual_sizes(16, 2, 256)},
          {"blocks128_8k", long_blocks()},
          {"documents_8k", usual_sizes(32, 4, 128), {128, 2048, 512, 1536, 256, 1024, 384, 2304}}};
}

}  // namespace suites
