// The operators' node in the graph of autograd, and what it keeps.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/function.h>

#include "nsa/api/kept_results.h"
#include "nsa/nsa.h"

namespace nsa {
namespace {

using testing::HasSubstr;
using torch::autograd::variable_list;

/// A call of fp32 tensors, which the CPU kernels take forward and backward.
class AttentionNodeTest : public testing::Test {
 protected:
  AttentionNodeTest() {
    at::manual_seed(7);
    config_.block_size = config_.block_stride = config_.sel_block_size = 4;
    config_.top_n = 4, config_.window = 5;
  }
  at::Tensor o() { return attention(q_, k_, v_, gates_, config_); }
  variable_list inputs() const { return {q_, k_, v_, gates_}; }
  static at::Tensor random(int64_t heads, int64_t dim) {
    return at::randn({1, 20, heads, dim}).requires_grad_();
  }
  static variable_list gradients(const at::Tensor& o, const variable_list& of, bool retain) {
    return torch::autograd::grad({o}, of, {at::ones_like(o)}, retain);
  }
  AttentionCall call() const {
    AttentionCall call;
    call.tensors = {q_.detach(), k_.detach(), v_.detach(), gates_.detach()};
    call.config = config_;
    call.take_tensor_sizes();
    return call;
  }
  size_t num_kept(const AttentionCall& call) const {
    return compute(call, /*keep=*/true).kept.size();
  }

  Config config_;
  at::Tensor q_ = random(4, 8), k_ = random(2, 8), v_ = random(2, 6), gates_ = random(4, 3);
};

template <class F>
std::string text_of_error(F work) {
  try {
    work();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST_F(AttentionNodeTest, ARetainedGraphGivesTheSameBitsAgain) {
  const at::Tensor once = o();
  EXPECT_EQ(once.grad_fn()->name(), "NsaAttentionBackward");
  const variable_list first = gradients(once, inputs(), /*retain=*/true);
  const variable_list second = gradients(once, inputs(), /*retain=*/false);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i])) << i;
  EXPECT_THAT(text_of_error([&] { gradients(once, inputs(), false); }),
              HasSubstr("backward through the graph a second time"));
}

TEST_F(AttentionNodeTest, EachGradientIsThatOfItsTensor) {
  const variable_list all = gradients(o(), inputs(), false);
  const variable_list some = gradients(o(), {gates_, k_}, false);
  EXPECT_TRUE(some[0].equal(all[3]));
  EXPECT_TRUE(some[1].equal(all[1]));
}

TEST_F(AttentionNodeTest, AnArgumentChangedInPlaceIsSeen) {
  const at::Tensor changed = o();
  {
    const at::NoGradGuard no_graph;
    k_.add_(1);
  }
  EXPECT_THAT(text_of_error([&] { gradients(changed, inputs(), false); }),
              HasSubstr("modified by an inplace operation"));
}

TEST_F(AttentionNodeTest, ForwardModeIsRefused) {
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const at::Tensor dual =
      at::_make_dual(q_.detach(), at::ones_like(q_), static_cast<int64_t>(level));
  EXPECT_THAT(text_of_error([&] { attention(dual, k_, v_, gates_, config_); }),
              HasSubstr("forward-mode derivatives are not supported"));
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST_F(AttentionNodeTest, WhatIsAnArgumentOrTheSameTwiceIsNotKept) {
  AttentionCall own_window = call();
  own_window.tensors[8] = k_.detach().clone();
  EXPECT_EQ(num_kept(call()), 11u) << "rotated keys of two branches are one";
  EXPECT_EQ(num_kept(own_window), 12u);
  config_.rope = RopeMode::kNone;
  EXPECT_EQ(num_kept(call()), 9u) << "not rotated, they are arguments";
}

TEST_F(AttentionNodeTest, ResultsOfAnotherCallAreRefused) {
  AttentionOutput out = compute(call(), /*keep=*/true);
  out.kept.pop_back();
  EXPECT_THAT(
      text_of_error([&] { kept_gradients(call(), out.kept, out.o, {0xf}); }),
      HasSubstr("kept must be the 11 results of the forward operator of the same call, got 10"));
}

}  // namespace
}  // namespace nsa
