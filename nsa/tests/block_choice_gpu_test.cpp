// The compressed branch and the blocks that it chooses against fp64 on the CPU; part of
// backends_gpu_test.
#include <algorithm>
#include <vector>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/select/ranges.h"
#include "nsa/ops/select/scores.h"
#include "nsa/tests/backends_gpu_testing.h"

namespace nsa {
namespace {

/// Every free block chosen scores no less than one that was not, but for `slack`; forced ones and
/// counts are exact. scores [B, S, Hkv, blocks] fp64, block_idx [B, S, Hkv, n].
void expect_selection(const at::Tensor& block_idx, const at::Tensor& scores, const NsaConfig& c,
                      double slack) {
  const auto ids = block_idx.accessor<int32_t, 4>();
  const auto score = scores.accessor<double, 4>();
  int64_t wrong = 0;
  for (int64_t b = 0; b < ids.size(0); ++b) {
    for (int64_t t = 0; t < ids.size(1); ++t) {
      for (int64_t h = 0; h < ids.size(2); ++h) {
        const int64_t current = t / c.sel_block_size, count = std::min(c.top_n, current + 1);
        std::vector<bool> chosen(static_cast<size_t>(current + 1), false);
        bool ok = true;
        for (int64_t i = 0; i < c.top_n; ++i) {
          const int64_t id = ids[b][t][h][i];
          ok = ok && (i < count ? id >= 0 && id <= current && (i == 0 || id > ids[b][t][h][i - 1])
                                : id == -1);
          if (ok && i < count) chosen[static_cast<size_t>(id)] = true;
        }
        double least = std::numeric_limits<double>::infinity(), most = -least;
        for (int64_t j = 0; ok && j <= current; ++j) {
          const bool forced = j < c.num_initial || j > current - c.num_local;
          if (forced) {
            ok = chosen[static_cast<size_t>(j)];
          } else if (chosen[static_cast<size_t>(j)]) {
            least = std::min(least, score[b][t][h][j]);
          } else {
            most = std::max(most, score[b][t][h][j]);
          }
        }
        wrong += ok && least >= most - slack ? 0 : 1;
      }
    }
  }
  EXPECT_EQ(wrong, 0) << "rows with a wrong selection";
}

/// The branch and its choice of blocks against fp64, of two sequences of `s` tokens.
void expect_choice_of_scores(const NsaConfig& c, int64_t s, at::ScalarType dtype) {
  const int64_t group = c.num_heads / c.num_kv_heads, blocks = c.num_compressed(s);
  const at::Tensor q = at::randn({2, s, c.num_heads, c.qk_head_dim}, at::kDouble).to(dtype);
  const at::Tensor k = at::randn({2, blocks, c.num_kv_heads, c.qk_head_dim}, at::kDouble).to(dtype);
  const at::Tensor v = at::randn({2, blocks, c.num_kv_heads, c.v_head_dim}, at::kDouble).to(dtype);
  const auto cuda = [](const at::Tensor& x) { return x.to(at::kCUDA); };
  const auto fp64 = [](const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); };
  const CmpSelectResult have = cmp_attn_select(cuda(q), cuda(k), cuda(v), c);
  const CmpAttnResult want = cmp_attn(fp64(q), fp64(k), fp64(v), c);
  EXPECT_LE(distance(fp64(have.out), want.out), dtype == at::kHalf ? 5e-3 : 4e-2);
  EXPECT_LE(distance(fp64(have.lse), want.lse), 1e-5);
  const at::Tensor scores = block_scores(want.group_probs, c.num_sel_blocks(s), c);
  expect_selection(have.block_idx.cpu(), scores, c, 1e-5 * static_cast<double>(group));
  const at::Tensor t = at::arange(s, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  EXPECT_TRUE(at::equal(have.ranges,
                        block_ranges(RangesVersion::kV2, have.block_idx, t, c.sel_block_size)));
  const CmpSelectResult again = cmp_attn_select(cuda(q), cuda(k), cuda(v), c);
  EXPECT_TRUE(at::equal(have.out, again.out) && at::equal(have.block_idx, again.block_idx));
}

TEST(FusedOnCuda, CompressedBranchChoosesTheBlocksOfItsScores) {
  at::manual_seed(12);
  for (const auto& [group, dk, dv] : kFusedSizes) {
    for (const int64_t s : {1, 31, 150, 1500}) {
      SCOPED_TRACE(std::to_string(group) + " heads, S " + std::to_string(s));
      NsaConfig c;
      c.num_heads = 2 * group;
      c.num_kv_heads = 2;
      c.qk_head_dim = dk;
      c.v_head_dim = dv;
      c.top_n = group % 2 ? 7 : 16;
      if (group == 7) c.block_size = 16, c.block_stride = 4, c.sel_block_size = 32;
      c.validate();
      expect_choice_of_scores(c, s, group % 2 ? at::kHalf : at::kBFloat16);
    }
  }
}

/// More blocks, longer ones and larger groups than lists of a warp's lanes hold: code of sm_80.
TEST(FusedOnCuda, WideSelectionsAreChosenByTheKernel) {
  at::manual_seed(22);
  struct Wide {
    int64_t group, dim, block_size, sel_block_size, top_n;
  };
  for (const auto& [group, dim, block_size, sel_block_size, top_n] : {Wide{4, 64, 32, 32, 40},
                                                                      {16, 128, 32, 32, 64},
                                                                      {3, 64, 128, 128, 8},
                                                                      {2, 256, 32, 64, 33},
                                                                      {32, 64, 32, 64, 16},
                                                                      {48, 128, 32, 64, 7},
                                                                      {64, 64, 16, 16, 64}})
    for (const int64_t s : {1, 150, 3000}) {
      SCOPED_TRACE("G " + std::to_string(group) + ", dim " + std::to_string(dim) + ", l " +
                   std::to_string(block_size) + ", n " + std::to_string(top_n) + ", S " +
                   std::to_string(s));
      NsaConfig c;
      c.num_heads = group, c.num_kv_heads = 1;
      c.qk_head_dim = c.v_head_dim = dim;
      c.block_size = block_size, c.sel_block_size = sel_block_size, c.top_n = top_n;
      c.validate();
      const auto record = c10::make_intrusive<RunRecord>();
      const RunRecordScope scope(record);
      expect_choice_of_scores(c, s, group % 3 == 0 ? at::kHalf : at::kBFloat16);
      EXPECT_EQ(ran(record, "cmp_attn"), "fused sm_80");
    }
}

}  // namespace
}  // namespace nsa
