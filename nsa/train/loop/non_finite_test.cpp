// The first value that is not finite is named: parameter, layer, branch, forward or backward.
#include "nsa/train/loop/non_finite.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nsa/train/loop/trainer_testing.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

TEST(NonFinite, FirstBadTensorIsNamed) {
  const auto random = make_synthetic_source(16, 3);
  const TrainOptions options = small_options(5);
  const auto run = [&](const std::function<void(Decoder&)>& damage,
                       LossFunction loss = next_token_loss) {
    Rig s = make_rig(options, *random, 16, std::move(loss));
    s.trainer->step(false);
    const at::NoGradGuard no_grad;
    damage(s.model);
    StepRecord record;
    {
      const at::AutoGradMode grad(true);
      record = s.trainer->step(false);
      EXPECT_FALSE(std::isfinite(record.loss) && std::isfinite(record.grad_norm));
      return s.trainer->locate_non_finite();
    }
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(run([&](Decoder& m) {
                m->named_parameters()["layer1.attention.w_o"].view({-1})[5].fill_(nan);
              }),
              HasSubstr("parameter layer1.attention.w_o: 1 of 1024 values are not finite (1 NaN), "
                        "first at flat index 5"));
  EXPECT_THAT(run([&](Decoder& m) { m->named_parameters()["layer1.w_down"].fill_(3e38); }),
              HasSubstr("layer1: MLP: "));
  EXPECT_THAT(
      run([&](Decoder& m) { m->named_parameters()["layer0.attention.w_v_win"].fill_(3e38); }),
      HasSubstr("layer0: projection, v_win: "));
  EXPECT_THAT(run([](Decoder&) {},
                  [n = 0](const at::Tensor& logits, const at::Tensor& tokens) mutable {
                    const at::Tensor loss = next_token_loss(logits, tokens);
                    return n++ == 0 ? loss : loss * std::numeric_limits<double>::infinity();
                  }),
              HasSubstr("loss: "));
}

/// Attention whose selected branch gives a NaN in layer 1, forward or backward, from finite inputs.
TEST(NonFinite, LayerBranchAndOperationAreNamed) {
  const auto random = make_synthetic_source(16, 3);
  const Rig s = make_rig(small_options(1), *random, 16);
  const at::Tensor tokens = at::arange(17).unsqueeze(0) % 16;
  const auto locate = [&](const std::function<void(NsaOutputs&)>& damage) {
    const LayerAttention attention = [&](size_t index, NsaAttentionImpl& layer,
                                         const at::Tensor& x) {
      NsaAttentionImpl::Detailed out = layer.forward_detailed(x);
      if (index == 1) damage(out.attention);
      out.y = layer.project_out(out.attention.o);
      return out;
    };
    Decoder model = s.model;
    return locate_non_finite(model, tokens, next_token_loss, attention);
  };
  EXPECT_THAT(locate([](NsaOutputs& out) {
                out.o_sel = out.o_sel.clone();
                out.o_sel.detach().view({-1})[3].fill_(NAN);
              }),
              HasSubstr("layer1: selected attention, o_sel: 1 of "));
  EXPECT_THAT(locate([](NsaOutputs& out) {
                // Finite forward; the root of 0 has an infinite derivative, 0 times that is NaN.
                out.o = out.o + (out.o * 0).sqrt();
              }),
              HasSubstr("gradient of layer1: "));
  EXPECT_EQ(locate([](NsaOutputs&) {}), "");
}

TEST(NonFinite, WeightsAreAsBefore) {
  const auto random = make_synthetic_source(16, 3);
  const TrainOptions options = small_options(5);
  const Rig s =
      make_rig(options, *random, 16, [](const at::Tensor& logits, const at::Tensor& tokens) {
        return next_token_loss(logits, tokens) * std::nan("");
      });
  std::vector<at::Tensor> before;
  for (const at::Tensor& p : s.model->parameters()) before.push_back(p.detach().clone());
  s.trainer->step(false);
  const auto after = s.model->parameters();
  for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
}

}  // namespace
}  // namespace nsa::train
