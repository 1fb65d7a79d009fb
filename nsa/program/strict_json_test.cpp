#include "nsa/program/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nsa {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_strict_json(text, "m.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "read";
}

TEST(StrictJson, ErrorsCarryPosition) {
  const std::string text = "{\n  \"dim\": 1,\n  \"leyers\": 2\n}";
  const nlohmann::json json = parse_strict_json(text, "m.json");
  StrictObject object(json, "m.json", text);
  object.required<int64_t>("dim");
  object.optional<int64_t>("layers", 1);
  try {
    object.finish();
    FAIL();
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "m.json:3:13: unknown key \"leyers\"; did you mean \"layers\"?");
  }
}

TEST(StrictJson, TextThatIsNotOneValueIsRefused) {
  EXPECT_EQ(refusal("{}"), "read");
  for (const char* text : {"", "{", "{} {}", "{} // why", "{\"a\": 01}", "\xff"})
    EXPECT_THAT(refusal(text), HasSubstr("m.json: not valid JSON")) << text;
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": 2}, "a": 3})"),
            "m.json: key \"a\" is given twice in one object");
}

/// Deep nesting would exhaust the stack when the value is moved or printed.
TEST(StrictJson, DepthHasABound) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(refusal(nested(60)), "read");
  for (const size_t depth : {size_t{100}, size_t{300'000}})
    EXPECT_EQ(refusal("{\"name\": " + nested(depth) + "}"), "m.json: nests deeper than 64 levels");
  EXPECT_EQ(refusal(std::string(300'000, '[')), "m.json: nests deeper than 64 levels");
}

}  // namespace
}  // namespace nsa
