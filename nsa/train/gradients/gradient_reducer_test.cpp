#include "nsa/train/gradients/gradient_reducer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "nsa/train/ranks_testing.h"

namespace nsa::train {
namespace {

/// One rank that sums the gradients of three matrices, each a bucket. The last is used first.
class OneRank {
 public:
  OneRank()
      : group_({.rank = 0,
                .world = 1,
                .local_rank = 0,
                .host = "127.0.0.1",
                .port = std::stoll(Port().text())},
               at::kCPU, std::chrono::seconds(30)) {
    at::manual_seed(1);
    for (int i = 0; i < 3; ++i) parameters_.push_back(at::randn({512, 512}).requires_grad_());
    ReducerOptions options;
    options.bucket_mib = 1;
    reducer_ = std::make_unique<GradientReducer>(parameters_, group_, options, log_);
    log_.begin("nothing");
  }
  ~OneRank() { group_.leave(); }

  /// One step; `between` is called in its backward pass when the last matrix has no gradient yet.
  void step(const std::function<void()>& between) {
    reducer_->begin_pass(/*first=*/true, /*last=*/true);
    at::Tensor x = at::mm(at::ones({1, 512}), parameters_[2]);
    x.register_hook([&](const at::Tensor&) { between(); });
    at::mm(at::mm(x, parameters_[1]), parameters_[0]).sum().backward();
    reducer_->end_pass();
    log_.end();
  }
  /// Whether a collective of this name begins within ten seconds.
  bool begins(const std::string& name) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (log_.last().find(name) == std::string::npos) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  RankGroup group_;
  CollectiveLog log_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<GradientReducer> reducer_;
};

TEST(GradientReducerTest, BucketsAreSentWhenTheyAreAskedForAndTheLastByItself) {
  OneRank rank;
  rank.step([&] {
    EXPECT_THAT(rank.log_.last(), ::testing::HasSubstr("nothing"));
    rank.reducer_->send_ready();
    EXPECT_TRUE(rank.begins("allreduce of bucket 1")) << rank.log_.last();
  });
  EXPECT_THAT(rank.log_.last(), ::testing::HasSubstr("allreduce of bucket 2 (1.00 MiB), ended"));
  EXPECT_EQ(rank.reducer_->bucket_bytes(), (std::vector<int64_t>(3, 1 << 20)));
}

TEST(GradientReducerTest, NobodyHasToAskForThem) {
  OneRank rank;
  for (int step = 0; step < 3; ++step) {
    rank.step([] {});
    EXPECT_EQ(rank.reducer_->bucket_times().size(), 3);
    for (at::Tensor& matrix : rank.parameters_) {
      EXPECT_TRUE(matrix.grad().defined());
      matrix.mutable_grad() = at::Tensor();
    }
  }
}

}  // namespace
}  // namespace nsa::train
