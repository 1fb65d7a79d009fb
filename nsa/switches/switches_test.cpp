#include "nsa/switches/switches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <set>
#include <stdexcept>

namespace nsa {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;
using Values = SwitchSet::Values;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Switches, RegistryHasUniqueNamesAndValidDefaults) {
  std::set<std::string> names;
  for (const SwitchInfo& info : switch_registry()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_THAT(info.name, HasSubstr("NSA_"));
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    if (!info.default_value.empty()) {
      EXPECT_EQ(error_of([&] { SwitchSet::from({{info.name, info.default_value}}, {}, {}); }),
                "accepted");
    }
  }
  EXPECT_GE(names.size(), 24u);
}

TEST(Switches, LaterOriginHasPrecedence) {
  const Values low{{"NSA_ACCUM", "2"}}, middle{{"NSA_ACCUM", "3"}}, high{{"NSA_ACCUM", "4"}};
  EXPECT_EQ(SwitchSet().get_int("NSA_ACCUM", 7), 7);
  EXPECT_EQ(SwitchSet::from(low, {}, {}).get_int("NSA_ACCUM", 7), 2);
  EXPECT_EQ(SwitchSet::from(low, middle, {}).get_int("NSA_ACCUM"), 3);
  const SwitchSet set = SwitchSet::from(low, middle, high);
  EXPECT_EQ(set.get_int("NSA_ACCUM"), 4);
  bool listed = false;
  for (const SwitchValue& value : set.list()) {
    if (value.name != "NSA_ACCUM") continue;
    listed = true;
    EXPECT_EQ(value.value, "4");
    EXPECT_EQ(value.origin, "command line");
  }
  EXPECT_TRUE(listed);
}

TEST(Switches, UnknownNameNamesTheNearest) {
  EXPECT_THAT(error_of([] { SwitchSet::from({}, {{"NSA_SEL_RANGE_V2", "1"}}, {}); }),
              StrEq("unknown switch NSA_SEL_RANGE_V2=1 (environment); the nearest known name is "
                    "NSA_SEL_RANGES_V2"));
  EXPECT_THAT(error_of([] { SwitchSet::from({{"batch_size", "1"}}, {}, {}); }),
              HasSubstr("unknown switch batch_size=1 (config)"));
  EXPECT_EQ(error_of([] { SwitchSet::from({}, {{"HOME", "/"}}, {}); }), "accepted");
}

TEST(Switches, WrongTypeIsNamed) {
  EXPECT_THAT(error_of([] { SwitchSet::from({}, {{"NSA_NVTX", "yes"}}, {}); }),
              StrEq("NSA_NVTX must be 0 or 1, got 'yes' (environment)"));
  EXPECT_THAT(error_of([] { SwitchSet::from({}, {}, {{"NSA_ACCUM", "0"}}); }),
              StrEq("NSA_ACCUM must be an integer of at least 1, got '0' (command line)"));
  EXPECT_THAT(error_of([] { SwitchSet::from({}, {}, {{"NSA_ACCUM", "2x"}}); }),
              HasSubstr("got '2x'"));
  EXPECT_THAT(error_of([] { SwitchSet::from({{"NSA_DDP_COMPRESS", "fp8"}}, {}, {}); }),
              StrEq("NSA_DDP_COMPRESS must be one of none|bf16, got 'fp8' (config)"));
}

TEST(Switches, MoreThanOneSelectionBackendIsAnError) {
  EXPECT_THAT(error_of([] {
                SwitchSet::from({{"NSA_USE_SEL_PACK", "1"}}, {{"NSA_USE_SEL_MASK", "1"}}, {});
              }),
              StrEq("more than one selection backend is set: NSA_USE_SEL_PACK, NSA_USE_SEL_MASK; "
                    "set at most one"));
}

TEST(Switches, IgnoredSwitchNamesThePath) {
  const SwitchSet set = SwitchSet::from({}, {{"NSA_SEL_RANGES_V2", "0"}}, {});
  EXPECT_THAT(error_of([&] { set.require_honoured("decode", {"NSA_NVTX"}); }),
              StrEq("NSA_SEL_RANGES_V2=0 (environment) is ignored by decode; unset it or choose "
                    "another path"));
  EXPECT_EQ(error_of([&] { set.require_honoured("prefill", {"NSA_SEL_RANGES_V2"}); }), "accepted");
}

TEST(Switches, ReadsTheProcessEnvironment) {
  ASSERT_EQ(setenv("NSA_SEQ_LEN", "96", 1), 0);
  EXPECT_EQ(SwitchSet::from_environment().get_int("NSA_SEQ_LEN"), 96);
  ASSERT_EQ(setenv("NSA_SEQ_LENGTH", "96", 1), 0);
  EXPECT_THAT(error_of([] { SwitchSet::from_environment(); }), HasSubstr("NSA_SEQ_LEN"));
  unsetenv("NSA_SEQ_LENGTH");
  unsetenv("NSA_SEQ_LEN");
}

TEST(Switches, ReadingWithTheWrongTypeIsALogicError) {
  EXPECT_THROW(SwitchSet().get_int("NSA_NVTX"), std::logic_error);
  EXPECT_THROW(SwitchSet().get_bool("NSA_NOWHERE"), std::logic_error);
}

}  // namespace
}  // namespace nsa
