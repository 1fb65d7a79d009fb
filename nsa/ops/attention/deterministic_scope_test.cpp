#include "nsa/ops/attention/deterministic_scope.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <memory>

namespace nsa {
namespace {

bool deterministic() { return at::globalContext().deterministicAlgorithms(); }

// Two backward passes that overlap: the second ends after the first.
TEST(DeterministicScope, ScopesThatOverlapLeaveTheSettingAsItWas) {
  for (const bool before : {false, true}) {
    at::globalContext().setDeterministicAlgorithms(before, /*warn_only=*/before);
    auto first = std::make_unique<DeterministicScope>();
    auto second = std::make_unique<DeterministicScope>();
    EXPECT_TRUE(deterministic());
    first.reset();
    EXPECT_TRUE(deterministic()) << "the second one still needs it";
    second.reset();
    EXPECT_EQ(deterministic(), before);
    EXPECT_EQ(at::globalContext().deterministicAlgorithmsWarnOnly(), before);
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace
}  // namespace nsa
