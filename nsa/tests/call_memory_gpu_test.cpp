// Memory of a backward pass: where the graph is not kept, the outputs of the branches go as soon as
// gates and row statistics are made of them; part of backends_gpu_test.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nsa/layer/nsa_attention.h"
#include "nsa/nsa.h"

namespace nsa {
namespace {

using torch::autograd::variable_list;
using Call = at::Tensor (*)(const variable_list&);

constexpr int64_t kTokens = 4096, kHeads = 16, kDim = 128;
constexpr int64_t kOutputBytes = kTokens * kHeads * kDim * 2, kIdBytes = kTokens * 16 * 4;

Config config_of_call() {
  Config config;
  config.num_heads = kHeads;
  config.num_kv_heads = 1;
  config.qk_head_dim = config.v_head_dim = kDim;
  config.rope = RopeMode::kNone;
  return config;
}

variable_list leaves() {
  at::manual_seed(31);
  variable_list made;
  for (const auto& [heads, dim] :
       {std::pair{kHeads, kDim}, {int64_t{1}, kDim}, {int64_t{1}, kDim}, {kHeads, int64_t{3}}})
    made.push_back(at::randn({1, kTokens, heads, dim}, at::device(at::kCUDA).dtype(at::kBFloat16))
                       .requires_grad_(true));
  return made;
}

/// The call of the layer; all but `o` is let go of, as a model does.
NsaOutputs layer_outputs(const variable_list& x, bool keep_branches) {
  NsaInputs in;
  in.q = x[0];
  in.k_cmp_src = in.k_sel = in.k_win = x[1];
  in.v_cmp_src = in.v_sel = in.v_win = x[2];
  in.gate_logits = x[3];
  NsaOptions options;
  options.sel = SelBackend::kFused;
  options.cmp = options.win = BranchBackend::kFused;
  options.keep_scores = false, options.strict_backend = true;
  options.keep_branches = keep_branches;
  return nsa_attention(in, config_of_call(), options);
}
at::Tensor layer_call(const variable_list& x) { return layer_outputs(x, true).o; }
at::Tensor call_of_two(const variable_list& x) { return layer_outputs(x, false).o; }

at::Tensor operator_call(const variable_list& x) {
  return attention(x[0], x[1], x[2], x[3], config_of_call());
}

/// What tensors ask for; the blocks that they get may be larger.
c10::CachingDeviceAllocator::Stat requested_bytes() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  return stats.requested_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

struct Backward {
  variable_list gradients;
  int64_t peak = 0;  ///< bytes beyond what stands before it
};

Backward backward_of(Call call, const variable_list& inputs, bool keeps_graph) {
  const at::Tensor o = call(inputs), d_o = at::ones_like(o);
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  const int64_t before = requested_bytes().current;
  Backward result;
  result.gradients = torch::autograd::grad({o}, inputs, {d_o}, keeps_graph);
  result.peak = requested_bytes().peak - before;
  return result;
}

void expect_outputs_dropped(Call call, int64_t outputs) {
  const variable_list inputs = leaves();
  const Backward kept = backward_of(call, inputs, true), dropped = backward_of(call, inputs, false);
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_TRUE(kept.gradients[i].equal(dropped.gradients[i])) << "input " << i;
  EXPECT_LE(dropped.peak, kept.peak - outputs * kOutputBytes);
}

TEST(CallMemoryOnCuda, TheLayerDropsOutputsOfBranchesInItsBackwardPass) {
  expect_outputs_dropped(layer_call, 3);
  expect_outputs_dropped(call_of_two, 2);
}

TEST(CallMemoryOnCuda, TheOperatorDropsOutputsOfBranchesInItsBackwardPass) {
  expect_outputs_dropped(operator_call, 2);
}

/// Bytes that the graph of an output holds beside it, and the most that making it took.
std::pair<int64_t, int64_t> forward_of(Call call, const variable_list& inputs) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  const int64_t before = requested_bytes().current;
  const at::Tensor o = call(inputs);
  return {requested_bytes().current - before, requested_bytes().peak - before};
}

TEST(CallMemoryOnCuda, ACallThatGivesNoBranchesKeepsTwoForThree) {
  const variable_list inputs = leaves();
  const auto [three, peak_three] = forward_of(layer_call, inputs);
  for (const Call call : {call_of_two, operator_call}) {
    const auto [two, peak_two] = forward_of(call, inputs);
    // The operator's node keeps the ids of blocks as well, which the layer gives away here.
    EXPECT_EQ(two, three - kOutputBytes + (call == operator_call ? kIdBytes : 0));
    EXPECT_LE(peak_two, peak_three);
  }
}

void expect_refused_after_overwriting(const at::Tensor& x, const at::Tensor& o,
                                      const variable_list& inputs) {
  const at::Tensor twice = o * 1;
  {
    const at::NoGradGuard no_graph;
    x.add_(1);
  }
  EXPECT_THROW(torch::autograd::grad({twice}, inputs, {at::ones_like(o)}), c10::Error);
}

/// Its backward pass reads the output, too.
TEST(CallMemoryOnCuda, AnOutputThatWasOverwrittenIsRefused) {
  const variable_list inputs = leaves();
  for (const Call call : {call_of_two, operator_call}) {
    SCOPED_TRACE(call == operator_call ? "operator" : "layer");
    const at::Tensor o = call(inputs);
    expect_refused_after_overwriting(o, o, inputs);
  }
}

TEST(CallMemoryOnCuda, AnInputThatWasOverwrittenIsRefused) {
  const variable_list inputs = leaves();
  for (const Call call : {layer_call, call_of_two, operator_call}) {
    for (const at::Tensor& x : inputs) {
      SCOPED_TRACE(testing::Message()
                   << "operator " << (call == operator_call) << ", input of " << x.sizes());
      expect_refused_after_overwriting(x, call(inputs), inputs);
    }
  }
}

TEST(CallMemoryOnCuda, AGraphThatIsNotKeptCannotBeAskedTwice) {
  const variable_list inputs = leaves();
  for (const Call call : {layer_call, call_of_two, operator_call}) {
    const at::Tensor o = call(inputs);
    torch::autograd::grad({o}, inputs, {at::ones_like(o)});
    EXPECT_THROW(torch::autograd::grad({o}, inputs, {at::ones_like(o)}), std::exception);
  }
}

}  // namespace
}  // namespace nsa
