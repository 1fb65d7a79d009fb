#include "nsa/ops/linear/gradient_places.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nsa/ops/linear/rounded_linear.h"
#include "nsa/ops/linear/transient_weights.h"

namespace nsa {
namespace {

/// Two matrices of 3 and 2 rows, and a bucket that holds both.
class GradientPlacesTest : public ::testing::Test {
 protected:
  GradientPlacesTest() {
    at::manual_seed(1);
    x = at::randn({7, 4});
    weights = {at::randn({3, 4}).requires_grad_(), at::randn({2, 4}).requires_grad_()};
    bucket = at::full({40}, 9.0);
  }
  void want(int64_t first, int64_t second) {
    places->want(weights[0], bucket.narrow(0, first, 12).view({3, 4}));
    places->want(weights[1], bucket.narrow(0, second, 8).view({2, 4}));
  }
  /// The products that have a backward pass of their own on a CPU too.
  at::Tensor loss(const std::vector<at::Tensor>& of) {
    const GradientPlaces::Scope scope(places);
    const TransientWeights transient;
    return rounded_linear(x, of).square().sum();
  }
  /// d loss / d weight of one use: 2 (x W^T)^T x.
  at::Tensor gradient(const at::Tensor& weight) const {
    const at::NoGradGuard no_grad;
    return 2 * at::mm(at::mm(x, weight.t()).t(), x);
  }
  void expect(double uses) {
    for (const at::Tensor& weight : weights)
      EXPECT_TRUE(at::allclose(weight.grad(), uses * gradient(weight), 1e-5, 1e-5));
  }
  bool in_bucket(int64_t i, int64_t offset) const {
    const at::Tensor& grad = weights[static_cast<size_t>(i)].grad();
    return grad.is_alias_of(bucket) && grad.storage_offset() == offset;
  }
  at::Tensor bucket_place(int64_t offset, const at::Tensor& like) const {
    return bucket.narrow(0, offset, like.numel()).view(like.sizes());
  }

  at::Tensor x, bucket;
  std::vector<at::Tensor> weights;
  c10::intrusive_ptr<GradientPlaces> places = c10::make_intrusive<GradientPlaces>();
};

TEST_F(GradientPlacesTest, OneProductFillsPlacesThatLieBehindOneAnother) {
  want(4, 16);
  loss(weights).backward();
  EXPECT_TRUE(in_bucket(0, 4) && in_bucket(1, 16));
  expect(1);
  EXPECT_TRUE(bucket.narrow(0, 0, 4).eq(9).all().item<bool>());
  EXPECT_TRUE(bucket.narrow(0, 24, 16).eq(9).all().item<bool>());
}

TEST_F(GradientPlacesTest, PlacesInAnotherOrderAreFilledToo) {
  want(20, 0);
  loss(weights).backward();
  EXPECT_TRUE(in_bucket(0, 20) && in_bucket(1, 0));
  expect(1);
}

TEST_F(GradientPlacesTest, AWeightThatIsUsedTwiceHasTheSumOfBoth) {
  want(4, 16);
  (loss(weights) + loss(weights)).backward();
  expect(2);
}

TEST_F(GradientPlacesTest, LaterMicroBatchesAreAddedUpInThePlace) {
  want(4, 16);
  loss(weights).backward();
  places->free_all();
  loss(weights).backward();
  expect(2);
  EXPECT_TRUE(in_bucket(0, 4) && in_bucket(1, 16));
}

TEST_F(GradientPlacesTest, APlaceIsFilledOnceUntilAllAreFree) {
  want(4, 16);
  loss(weights).backward();
  const at::Tensor sent = weights[0].grad();
  for (at::Tensor& weight : weights) weight.mutable_grad() = at::Tensor();
  loss({weights[0]}).backward();
  EXPECT_FALSE(weights[0].grad().is_alias_of(bucket));
  places->free_all();
  weights[0].mutable_grad() = at::Tensor();
  loss({weights[0]}).backward();
  EXPECT_TRUE(in_bucket(0, 4));
  EXPECT_TRUE(at::equal(sent, bucket_place(4, weights[0])));
}

TEST_F(GradientPlacesTest, ProductsOutsideOfTheScopeKnowNoPlaces) {
  want(4, 16);
  const TransientWeights transient;
  rounded_linear(x, weights).square().sum().backward();
  EXPECT_FALSE(weights[0].grad().is_alias_of(bucket));
  expect(1);
}

TEST_F(GradientPlacesTest, PlacesUnlikeTheirWeightAreRefused) {
  EXPECT_THROW(places->want(weights[0], bucket.narrow(0, 0, 8).view({2, 4})), c10::Error);
  EXPECT_THROW(places->want(weights[0], bucket.narrow(0, 0, 12).view({4, 3}).t()), c10::Error);
  EXPECT_THROW(places->want(weights[0], at::zeros({3, 4}, at::kDouble)), c10::Error);
  EXPECT_TRUE(places->empty());
}

}  // namespace
}  // namespace nsa
