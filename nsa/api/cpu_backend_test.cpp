// The CPU kernels behind the layer and the public operators: results, gradients and the record.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <set>

#include "nsa/diagnostics/run_record.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/nsa.h"
#include "nsa/ops/common/test_util.h"
#include "nsa/ops/window/win_attn.h"

namespace nsa {
namespace {

NsaConfig layer_config() {
  NsaConfig c;
  c.num_heads = 6, c.num_kv_heads = 2, c.qk_head_dim = 16, c.v_head_dim = 24;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 16, c.top_n = 4, c.window = 40;
  return c;
}

NsaOptions cpu_options() {
  NsaOptions options;
  options.cmp = options.win = BranchBackend::kCpu;
  options.sel = SelBackend::kCpu;
  options.keep_scores = false;
  return options;
}

double difference(const at::Tensor& have, const at::Tensor& want) {
  const at::Tensor x = have.to(at::kDouble), y = want.to(at::kDouble);
  const double largest = (x - y).abs().max().item<double>();
  return largest == 0 ? 0 : largest / y.abs().max().item<double>();
}

/// Output and gradients of a layer call; block_idx of the first call serves the second one, as
/// scores that differ in the last place may order blocks differently.
void compare_with_plain(NsaInputs in, const NsaConfig& c, double tolerance) {
  for (auto& [name, tensor] : differentiable(in)) tensor->requires_grad_(true);
  const NsaOutputs have = nsa_attention(in, c, cpu_options());
  const at::Tensor d_o = at::randn_like(have.o);
  have.o.backward(d_o);
  std::vector<at::Tensor> grads;
  for (auto& [name, tensor] : differentiable(in)) {
    grads.push_back(tensor->grad());
    tensor->mutable_grad() = at::Tensor();
  }
  NsaOptions plain;
  plain.block_idx = have.block_idx;
  const NsaOutputs want = nsa_attention(in, c, plain);
  EXPECT_LE(difference(have.o, want.o), tolerance);
  EXPECT_TRUE(at::equal(have.ranges, want.ranges));
  want.o.backward(d_o);
  size_t next = 0;
  for (auto& [name, tensor] : differentiable(in))
    EXPECT_LE(difference(grads[next++], tensor->grad()), tolerance) << name;
}

TEST(CpuBackend, LayerAgreesWithPlainOperators) {
  at::manual_seed(5);
  const NsaConfig c = layer_config();
  for (const int64_t tokens : {1, 7, 97, 500}) {
    SCOPED_TRACE("S " + std::to_string(tokens));
    compare_with_plain(random_inputs(c, 2, tokens, at::kFloat), c, 3e-6);
    compare_with_plain(random_inputs(c, 2, tokens, at::kBFloat16), c, 3e-2);
  }
}

TEST(CpuBackend, TakesScalesWindowOffAndHalfSplitPairs) {
  at::manual_seed(9);
  NsaConfig c = layer_config();
  c.scale_cmp = 0.9, c.scale_sel = 0.1, c.scale_win = 0.4;
  c.rope_pairs = RopePairs::kHalfSplit;
  compare_with_plain(random_inputs(c, 2, 97, at::kFloat), c, 3e-6);
  c.window = 0;
  compare_with_plain(random_inputs(c, 2, 97, at::kFloat), c, 3e-6);
}

TEST(CpuBackend, PackedDocuments) {
  at::manual_seed(6);
  const NsaConfig c = layer_config();
  NsaInputs in = random_inputs(c, 1, 300, at::kFloat, /*packed=*/true);
  in.cu_seqlens = at::tensor({0, 0, 1, 8, 140, 140, 300}, at::kInt);
  compare_with_plain(in, c, 3e-6);
}

/// Scores that are kept come from operators beside the kernel, which computes the branch still.
TEST(CpuBackend, KeptScoresAreThoseOfPlainOperators) {
  const NsaConfig c = layer_config();
  const NsaInputs in = random_inputs(c, 2, 90, at::kFloat);
  NsaOptions options = cpu_options(), plain;
  options.keep_scores = plain.keep_scores = true;
  const NsaOutputs have = nsa_attention(in, c, options), want = nsa_attention(in, c, plain);
  EXPECT_TRUE(at::equal(have.scores, want.scores));
  EXPECT_TRUE(at::equal(have.block_idx, want.block_idx));
  EXPECT_LE(difference(have.o_cmp, want.o_cmp), 3e-6);
  const auto branch = std::find_if(have.ran.begin(), have.ran.end(),
                                   [](const RanBackend& row) { return row.stage == "cmp_attn"; });
  ASSERT_NE(branch, have.ran.end());
  EXPECT_EQ(branch->backend, "cpu") << branch->reason;
}

TEST(CpuBackend, RecordNamesWhatRan) {
  const NsaConfig c = layer_config();
  const auto backend_of = [&](at::ScalarType type, const std::string& stage) -> std::string {
    const NsaOutputs out = nsa_attention(random_inputs(c, 1, 60, type), c, cpu_options());
    for (const auto& row : out.ran)
      if (row.stage == stage) return row.backend;
    return "missing";
  };
  for (const char* stage : {"cmp_attn", "select", "ranges", "sel_attn", "win_attn"})
    EXPECT_EQ(backend_of(at::kFloat, stage), "cpu") << stage;
  EXPECT_EQ(backend_of(at::kDouble, "cmp_attn"), "plain");
  EXPECT_EQ(backend_of(at::kDouble, "sel_attn"), "gather");
}

TEST(CpuBackend, StrictRequestForFp64IsAnError) {
  const at::Tensor x = at::randn({1, 4, 2, 8}, at::kDouble);
  EXPECT_THAT(error_of([&] { win_attn(x, x, x, 2, 0, {BranchBackend::kCpu, /*strict=*/true}); }),
              testing::HasSubstr("the kernel takes float, bfloat16 and half only"));
}

/// backend auto takes the kernels: its bits are those of a layer call that asks for them.
TEST(CpuBackend, AutoTakesTheKernels) {
  at::manual_seed(8);
  NsaConfig c = layer_config();
  c.v_head_dim = 16;
  const at::Tensor q = at::randn({1, 200, 6, 16}), k = at::randn({1, 200, 2, 16}),
                   v = at::randn({1, 200, 2, 16}), gates = at::randn({1, 200, 6, 3});
  const NsaInputs in{q, k, v, k, v, k, v, gates, {}, {}, {}};
  const at::Tensor want = nsa_attention(in, c, cpu_options()).o;
  EXPECT_TRUE(at::equal(attention(q, k, v, gates, c), want));
  EXPECT_EQ(which_backend(q, k, v, gates, c), "cpu");
  Options plain;
  plain.backend = Backend::kPlain;
  EXPECT_FALSE(at::equal(attention(q, k, v, gates, c, plain), want));
}

/// Gradients of attention() and of plain operators on the same blocks.
void compare_public_gradients(const NsaConfig& c, at::ScalarType type, bool own_keys,
                              double tolerance) {
  const auto leaf = [&](int64_t heads, int64_t dim) {
    return at::randn({2, 130, heads, dim}).to(type).requires_grad_(true);
  };
  const at::Tensor q = leaf(6, 16), k = leaf(2, 16), v = leaf(2, 24), gates = leaf(6, 3);
  std::vector<at::Tensor> leaves{q, k, v, gates};
  BranchTensors own;
  if (own_keys) leaves.push_back(own.k_win = leaf(2, 16));
  const at::Tensor o = attention(q, k, v, gates, c, {}, own);
  const at::Tensor d_o = at::randn_like(o);
  const auto record = c10::make_intrusive<RunRecord>(false, current_record());
  std::vector<at::Tensor> have;
  {
    const RunRecordScope scope(record);
    have = torch::autograd::grad({o}, leaves, {d_o});
  }
  std::set<std::string> stages;
  for (const auto& row : record->rows()) stages.insert(row.stage);
  for (const char* branch : {"cmp_attn", "sel_attn"}) {
    EXPECT_EQ(stages.count(std::string(branch) + ".backward"), 1U) << branch;
    EXPECT_EQ(stages.count(branch), 0U) << branch << " is not computed again";
  }
  const at::Tensor& win = own_keys ? own.k_win : k;
  const NsaInputs in{q, k, v, k, v, win, v, gates, {}, {}, {}};
  NsaOptions plain;
  plain.block_idx = nsa_attention(in, c, cpu_options()).block_idx;
  const auto want = torch::autograd::grad({nsa_attention(in, c, plain).o}, leaves, {d_o});
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_LE(difference(have[i], want[i]), tolerance) << "input " << i;
}

TEST(CpuBackend, OperatorsGradientsComeFromWhatItKept) {
  at::manual_seed(10);
  NsaConfig c = layer_config();
  for (const RopeMode rope : {RopeMode::kNone, RopeMode::kBeforePool}) {
    c.rope = rope;
    for (const bool own_keys : {false, true}) {
      compare_public_gradients(c, at::kFloat, own_keys, 3e-6);
      compare_public_gradients(c, at::kBFloat16, own_keys, 3e-2);
    }
  }
  c.window = 0;
  compare_public_gradients(c, at::kFloat, false, 3e-6);
}

}  // namespace
}  // namespace nsa
