#include "nsa/train/gradients/gradient_buckets.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "nsa/ops/linear/rounded_linear.h"
#include "nsa/ops/linear/transient_weights.h"

namespace nsa::train {
namespace {

using ::testing::ElementsAre;

/// A chain of three matrices of 16 x 16 floats (1 KiB), of which the last is used first, and a row
/// that scales what goes in.
class Chain {
 public:
  explicit Chain(int64_t cap_bytes = 1, int64_t last_bytes = 1, bool backwards = false) {
    at::manual_seed(1);
    for (int i = 0; i < 3; ++i) matrices_.push_back(at::randn({16, 16}).requires_grad_());
    scale_ = at::randn({16}).requires_grad_();
    std::vector<at::Tensor> listed{matrices_[0], matrices_[1], matrices_[2], scale_};
    if (backwards) std::ranges::reverse(listed);
    buckets_ = std::make_unique<GradientBuckets>(listed, cap_bytes, last_bytes,
                                                 [this](const GradientBuckets::Bucket& bucket) {
                                                   order_.push_back(bucket.index);
                                                   ready_.push_back(bucket.whole.numel());
                                                   last_.push_back(bucket.last);
                                                   whole_.push_back(bucket.whole);
                                                 });
  }

  at::Tensor loss(bool with_scale = true) {
    const GradientPlaces::Scope scope(buckets_->places());
    const TransientWeights transient;
    at::Tensor x = with_scale ? at::ones({4, 16}) * scale_ : at::ones({4, 16});
    for (auto matrix = matrices_.rbegin(); matrix != matrices_.rend(); ++matrix)
      x = rounded_linear(x, {*matrix});
    return x.square().sum();
  }
  void pass(bool first, bool last) {
    buckets_->begin_pass(first, last);
    loss().backward();
    buckets_->end_pass();
  }
  /// Gradients of one pass as autograd gives them.
  std::vector<at::Tensor> wanted() {
    std::vector<at::Tensor> to = matrices_;
    to.push_back(scale_);
    std::vector<at::Tensor> made = torch::autograd::grad({loss()}, to);
    for (at::Tensor& gradient : made) gradient = gradient.clone();  // it may lie in a bucket
    return made;
  }
  void expect(const std::vector<at::Tensor>& wanted, double times) {
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(matrices_[i].grad(), times * wanted[i], 1e-5, 1e-4)) << i;
    EXPECT_TRUE(at::allclose(scale_.grad(), times * wanted[3], 1e-5, 1e-4));
  }

  std::vector<at::Tensor> matrices_, whole_;
  at::Tensor scale_;
  std::vector<size_t> order_;
  std::vector<int64_t> ready_;  ///< elements
  std::vector<bool> last_;
  std::unique_ptr<GradientBuckets> buckets_;
};

TEST(GradientBucketsTest, ABucketIsReadyWithItsLastGradientInOrder) {
  Chain chain;
  chain.pass(true, true);
  EXPECT_THAT(chain.ready_, ElementsAre(256, 256, 256, 16));
  EXPECT_THAT(chain.last_, ElementsAre(false, false, false, true));
}

TEST(GradientBucketsTest, BucketsAreHandedOnInOrderWhicheverIsFilledFirst) {
  Chain chain(1, 1, /*backwards=*/true);
  chain.pass(true, true);
  EXPECT_THAT(chain.order_, ElementsAre(0, 1, 2, 3));
}

TEST(GradientBucketsTest, BucketsAreClosedFromTheLastParameterOn) {
  Chain chain(/*cap_bytes=*/2048, /*last_bytes=*/65);
  chain.pass(true, true);
  EXPECT_THAT(chain.ready_, ElementsAre(512, 272));
  EXPECT_THAT(chain.last_, ElementsAre(false, true));
}

TEST(GradientBucketsTest, WithoutACapEveryParameterIsABucket) {
  Chain chain(/*cap_bytes=*/0, /*last_bytes=*/0);
  chain.pass(true, true);
  EXPECT_THAT(chain.ready_, ElementsAre(256, 256, 256, 16));
}

TEST(GradientBucketsTest, GradientsLieInTheBuckets) {
  Chain chain(1 << 20, 1 << 20);
  const std::vector<at::Tensor> wanted = chain.wanted();
  chain.pass(true, true);
  chain.expect(wanted, 1);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(chain.matrices_[i].grad().is_alias_of(chain.whole_.front()));
    EXPECT_EQ(chain.matrices_[i].grad().storage_offset(), 256 * static_cast<int64_t>(i));
  }
  EXPECT_EQ(chain.scale_.grad().storage_offset(), 768);
}

TEST(GradientBucketsTest, MicroBatchesAddUpAndTheLastOneSends) {
  Chain chain;
  const std::vector<at::Tensor> wanted = chain.wanted();
  chain.pass(true, false);
  chain.pass(false, false);
  EXPECT_TRUE(chain.ready_.empty());
  chain.pass(false, true);
  EXPECT_EQ(chain.ready_.size(), 4);
  chain.expect(wanted, 3);
}

TEST(GradientBucketsTest, TheNextStepBeginsAnew) {
  Chain chain;
  const std::vector<at::Tensor> wanted = chain.wanted();
  for (int step = 0; step < 2; ++step) {
    chain.pass(true, true);
    chain.expect(wanted, 1);
    for (at::Tensor& matrix : chain.matrices_) matrix.mutable_grad() = at::Tensor();
    chain.scale_.mutable_grad() = at::Tensor();
  }
  EXPECT_EQ(chain.ready_.size(), 8);
}

TEST(GradientBucketsTest, AParameterWithoutAGradientIsNamedAndItsBucketNotSent) {
  Chain chain;
  chain.pass(true, false);
  chain.buckets_->begin_pass(false, true);
  chain.loss(/*with_scale=*/false).backward();
  try {
    chain.buckets_->end_pass();
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("parameter 3 of shape [16] must have"));
  }
  EXPECT_THAT(chain.last_, ElementsAre(false, false, false));
}

TEST(GradientBucketsTest, BackwardPassesOfOthersKeepTheirGradientsAndSendNothing) {
  Chain chain;
  chain.pass(true, true);
  at::Tensor& matrix = chain.matrices_[0];
  matrix.mutable_grad() = at::Tensor();
  matrix.square().sum().backward();
  EXPECT_FALSE(matrix.grad().is_alias_of(chain.whole_[0]));
  EXPECT_EQ(chain.ready_.size(), 4);
}

TEST(GradientBucketsTest, ParametersOfSeveralTypesAreRefused) {
  EXPECT_THROW(GradientBuckets({at::zeros({2, 2}).requires_grad_(),
                                at::zeros({2, 2}, at::kDouble).requires_grad_()},
                               1, 1, {}),
               c10::Error);
}

}  // namespace
}  // namespace nsa::train
