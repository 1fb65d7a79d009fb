// Which code of backend fused a process asks for; what it runs on a card is nsa-tests-cuda-sm80's.
#include "nsa/backend/kernel_code.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <vector>

#include "nsa/backend/card_facts.h"

namespace nsa {
namespace {

using testing::HasSubstr;

TEST(KernelCode, AnUnknownWordIsRefusedAndNamed) {
  try {
    want_kernels("sm70", at::kCUDA);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("NSA_KERNELS must be auto or sm80, got 'sm70'"));
  }
}

/// Set and passed over, it would make a run on a CPU look like one of that code.
TEST(KernelCode, RefusesDeviceWithoutKernelsAndNamesTheRemedy) {
  try {
    want_kernels("sm80", at::kCPU);
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
#ifdef NSA_WITH_CUDA
    EXPECT_STREQ(error.what(),
                 "NSA_KERNELS=sm80 asks for kernels, device cpu runs none; use device cuda, or "
                 "unset it");
#else
    EXPECT_STREQ(error.what(),
                 "NSA_KERNELS=sm80 asks for kernels, this build has none; use one with CUDA code, "
                 "or unset it");
#endif
  }
  EXPECT_NO_THROW(want_kernels("auto", at::kCPU));
}

/// A100 and A30 have 163 KB a block, A10, RTX 30 and RTX 40 have 99.
TEST(KernelCode, ACardWithoutTheSharedMemoryOfTheCodeOfSm80IsNamed) {
  constexpr size_t kLargest = 160 * 1024;
  EXPECT_EQ(shared_memory_obstacle(kLargest, 166912), "");
  EXPECT_EQ(shared_memory_obstacle(kLargest, 163840), "");
  EXPECT_EQ(shared_memory_obstacle(kLargest, 163839),
            "the kernels take up to 160 KB of shared memory a block, this card has 159");
  EXPECT_THAT(shared_memory_obstacle(kLargest, 101376), HasSubstr("this card has 99"));
}

/// The switch chooses among the card's codes; it is no way around a missing card.
TEST(KernelCode, CpuTensorsHaveNoKernel) {
#ifdef NSA_WITH_CUDA
  constexpr const char* kObstacle = "the kernel runs on CUDA only";
  const std::vector<const char*> codes{"sm80", "auto"};
#else
  constexpr const char* kObstacle = "this build has no CUDA code";
  const std::vector<const char*> codes{"auto"};
#endif
  const at::Tensor q = at::zeros({1, 4, 2, 64}, at::kBFloat16);
  for (const char* code : codes) {
    want_kernels(code, at::kCUDA);
    for (const KernelFamily family : {KernelFamily::kInterval, KernelFamily::kTokens}) {
      const KernelChoice kernel = choose_kernel(q, {.family = family});
      EXPECT_EQ(kernel.code, KernelCode::kNone) << code;
      EXPECT_EQ(kernel.obstacle, kObstacle) << code;
      EXPECT_EQ(kernel.detail, "") << code;
    }
    EXPECT_FALSE(token_kernels_run(q)) << code;
  }
}

TEST(KernelCode, TheBuildHasMachineCodeForBothArchitecturesAndPtxForLaterOnes) {
  EXPECT_TRUE(built_machine_code().sm80);
  EXPECT_TRUE(built_machine_code().sm90a);
  EXPECT_TRUE(built_machine_code().sm80_ptx);
}

}  // namespace
}  // namespace nsa
