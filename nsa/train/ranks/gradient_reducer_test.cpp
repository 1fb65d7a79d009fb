#include "nsa/train/ranks/gradient_reducer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

/// One rank that sums the gradients of three matrices, of which the last is used first.
class OneRank {
 public:
  OneRank()
      : group_({.rank = 0,
                .world = 1,
                .local_rank = 0,
                .host = "127.0.0.1",
                .port = std::stoll(Port().text())},
               at::kCPU, std::chrono::seconds(30)) {
    for (int i = 0; i < 3; ++i) parameters_.push_back(at::ones({64, 64}).requires_grad_());
    reducer_ = std::make_unique<GradientReducer>(parameters_, group_, ReducerOptions{}, log_);
  }
  ~OneRank() { group_.leave(); }

  /// The bucket that holds the gradients of a step; `agreed` is the last line of the log before its
  /// forward pass.
  c10::Storage step(std::string& agreed) {
    reducer_->before_step();
    agreed = log_.last();
    at::Tensor x = at::ones({1, 64});
    for (auto matrix = parameters_.rbegin(); matrix != parameters_.rend(); ++matrix)
      x = at::mm(x, *matrix) / 64;
    reducer_->before_backward(x.sum(), /*first=*/true, /*last=*/true).backward();
    reducer_->after_backward();
    log_.end();
    const c10::Storage bucket = parameters_.front().grad().storage();
    for (at::Tensor& matrix : parameters_) matrix.mutable_grad() = at::Tensor();
    return bucket;
  }

 private:
  RankGroup group_;
  CollectiveLog log_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<GradientReducer> reducer_;
};

// The log names the agreement in the step in which LibTorch makes the buckets anew, so that a rank
// that hangs there is found.
TEST(GradientReducerTest, RanksAgreeOnBucketsWhereTheyAreMadeAnew) {
  OneRank rank;
  // Held to the end: a bucket made anew could lie where a freed one lay.
  std::vector<c10::Storage> buckets;
  std::vector<std::string> agreed(6);
  for (std::string& logged : agreed) buckets.push_back(rank.step(logged));
  const auto agreement = ::testing::HasSubstr("agreement on the order of buckets, ended");
  for (size_t i = 1; i < agreed.size(); ++i) {
    if (!buckets[i].is_alias_of(buckets[i - 1]))
      EXPECT_THAT(agreed[i], agreement) << "step " << i + 1;
    else
      EXPECT_THAT(agreed[i], ::testing::Not(agreement)) << "step " << i + 1;
  }
  EXPECT_FALSE(buckets[2].is_alias_of(buckets[1]));
}

}  // namespace
}  // namespace nsa::train
