// The memory guards see what they are for.
#include "suites/conformance/redzone.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "suites/conformance/checks/invariant_checks.h"
#include "suites/conformance/settings.h"

namespace suites {
namespace {

TEST(Redzone, WriteBehindABlockIsSeenWhenItIsFreed) {
  const RedzoneScope scope;
  {
    const at::Tensor x = at::empty({3, 5}, at::kHalf);
    static_cast<char*>(x.data_ptr())[x.nbytes()] = 0;
  }
  EXPECT_EQ(scope.violations(), 1);
  {
    const at::Tensor x = at::zeros({7}, at::kInt);
    static_cast<char*>(x.data_ptr())[-1] = 0;
  }
  EXPECT_EQ(scope.violations(), 2);
  {
    const at::Tensor x = at::ones({4, 4}) + 1;
  }
  EXPECT_EQ(scope.violations(), 2);
  EXPECT_GE(scope.allocations(), 3);
}

TEST(Redzone, FreshMemoryIsNan) {
  const RedzoneScope scope;
  for (at::ScalarType type : all_types())
    EXPECT_TRUE(at::empty({5}, type).isnan().all().item<bool>()) << dtype_name(type);
}

TEST(Redzone, GuardedTensorHoldsItsValuesAmongPoison) {
  for (const bool gaps : {false, true}) {
    const at::Tensor x = at::arange(24, at::kFloat).view({2, 3, 2, 2});
    const GuardedTensor guard(x, gaps);
    EXPECT_TRUE(at::equal(guard.tensor(), x));
    EXPECT_EQ(guard.tensor().is_contiguous(), !gaps);
    EXPECT_EQ(guard.changed_bytes(), 0);
    guard.tensor()[1][2][1][1] = 7;
    EXPECT_GT(guard.changed_bytes(), 0);
  }
}

/// Writes one byte behind its output, but only where a guard band stands there.
TEST(Redzone, WriteBehindAnOutputFailsTheCheck) {
  const c10::Allocator* ordinary = c10::GetCPUAllocator();
  Candidate broken = plain_candidate();
  broken.win_attn = [base = broken.win_attn, ordinary](const at::Tensor& q, const at::Tensor& k,
                                                       const at::Tensor& v, int64_t window,
                                                       int64_t first) {
    TensorPair right = base(q, k, v, window, first);
    if (c10::GetCPUAllocator() != ordinary)
      static_cast<char*>(right.first.data_ptr())[right.first.nbytes()] = 0;
    return right;
  };
  OperatorCase one = case_of({3, at::kFloat});
  one.device = at::kCPU;
  std::string failed;
  for (const Check& check : check_poisoned_memory(broken, one))
    if (!check.ok) failed += check.id;
  EXPECT_NE(failed.find("/blocks/"), std::string::npos) << failed;
}

}  // namespace
}  // namespace suites
