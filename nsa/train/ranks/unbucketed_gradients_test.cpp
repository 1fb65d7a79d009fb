#include "nsa/train/ranks/unbucketed_gradients.h"

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

// 3 floats are 12 bytes, 32 are 128; 4097 are more than 16 KiB.
TEST(UnbucketedGradientsTest, SmallOnesThatAreNotAlignedAreTaken) {
  const UnbucketedGradients loose({floats(64), floats(3), floats(32), floats(128), floats(4097)});
  EXPECT_EQ(sizes(loose.others()), (std::vector<int64_t>{64, 128, 4097}));
}

TEST(UnbucketedGradientsTest, SomethingIsLeftForTheBuckets) {
  EXPECT_EQ(sizes(UnbucketedGradients({floats(3), floats(5)}).others()),
            (std::vector<int64_t>{3, 5}));
}

}  // namespace
}  // namespace nsa::train
