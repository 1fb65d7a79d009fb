// main() of tests that need a GPU: ends with 77 (skipped) where there is none.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!at::hasCUDA()) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return RUN_ALL_TESTS();
}
