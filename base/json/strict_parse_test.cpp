#include "base/json/strict_parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace base {
namespace {

using Reason = StrictJsonError::Reason;
using testing::HasSubstr;

std::optional<Reason> reason_of(std::string_view text, std::string* what = nullptr) {
  try {
    parse_strict(text, 3);
  } catch (const StrictJsonError& error) {
    if (what != nullptr) *what = error.what();
    return error.reason();
  }
  return std::nullopt;
}

TEST(StrictParse, ReadsOneValueWithPositions) {
  const nlohmann::json value = parse_strict(R"({"a": [1, "x"]})", 3);
  EXPECT_EQ(value, (nlohmann::json{{"a", {1, "x"}}}));
  EXPECT_EQ(value["a"].start_pos(), 6U);
}

TEST(StrictParse, RefusesAnythingButOneValue) {
  std::string what;
  for (const char* text : {"", "{", "{} {}", "{} // why", "{\"a\": 01}", "\xff"})
    EXPECT_EQ(reason_of(text, &what), Reason::kSyntax) << text;
  EXPECT_THAT(what, HasSubstr("parse error"));
}

TEST(StrictParse, RefusesAKeyGivenTwiceInOneObject) {
  std::string what;
  EXPECT_EQ(reason_of(R"({"a": 1, "b": {"a": 2}, "\u0061": 3})", &what), Reason::kDuplicateKey);
  EXPECT_EQ(what, "a");
  EXPECT_EQ(reason_of(R"([{"a": 1}, {"a": {"a": 2}}])"), std::nullopt);
}

TEST(StrictParse, BoundsTheDepth) {
  EXPECT_EQ(reason_of("[[[1]]]"), std::nullopt);
  EXPECT_EQ(reason_of("[[[[]]]]"), Reason::kTooDeep);
  EXPECT_EQ(reason_of(R"({"a": {"b": [{}]}})"), Reason::kTooDeep);
  EXPECT_EQ(reason_of(std::string(300'000, '[')), Reason::kTooDeep);
}

}  // namespace
}  // namespace base
