#include "nsa/train/gradients/unbucketed_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace nsa::train {
namespace {

std::vector<int64_t> sizes(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> found;
  for (const at::Tensor& tensor : tensors) found.push_back(tensor.numel());
  return found;
}

at::Tensor floats(int64_t count) { return at::zeros({count}); }

// 4096 floats are 16 KiB.
TEST(UnbucketedGradientsTest, SmallOnesAreTaken) {
  const UnbucketedGradients loose({floats(8192), floats(3), floats(4096), floats(4097)});
  EXPECT_EQ(sizes(loose.others()), (std::vector<int64_t>{8192, 4097}));
}

TEST(UnbucketedGradientsTest, SomethingIsLeftForTheBuckets) {
  EXPECT_EQ(sizes(UnbucketedGradients({floats(3), floats(5)}).others()),
            (std::vector<int64_t>{3, 5}));
}

}  // namespace
}  // namespace nsa::train
