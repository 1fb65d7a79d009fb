#include "harness/schema/parse/source.h"

#include "harness/schema/testing.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(const std::string& text) {
  return config_error_of([&] { Source().parse(text, "f.json"); });
}

TEST(Source, ReadsJsonWithComments) {
  const json value =
      Source().parse("// head\n{\"a\": /* one */ 1, \"b\": \"// no comment\"}\n", "f");
  EXPECT_EQ(value, (json{{"a", 1}, {"b", "// no comment"}}));
}

TEST(Source, SyntaxErrorsNameThePosition) {
  EXPECT_THAT(error_of("{\"a\": 1,\n  }"), StartsWith("f.json:2:3: not valid JSON: syntax error"));
  EXPECT_THAT(error_of("{\"a\": NaN}"), StartsWith("f.json:1:7: not valid JSON"));
  EXPECT_THAT(error_of("{} x"), StartsWith("f.json:1:4: not valid JSON"));
  EXPECT_THAT(error_of("{\"a\": 1"), HasSubstr("unexpected end of input"));
}

TEST(Source, EmptyTextIsNamedAsSuch) {
  EXPECT_THAT(error_of(""), HasSubstr("is empty; want a JSON object"));
  EXPECT_THAT(error_of(" \n "), HasSubstr("is empty"));
}

TEST(Source, NothingHidesBehindANulByte) {
  EXPECT_THAT(error_of(std::string("{}\0{\"a\": 1}", 11)), HasSubstr(":1:3: holds a NUL byte"));
  EXPECT_THAT(error_of(std::string("{}\0", 3)), HasSubstr("holds a NUL byte"));
}

TEST(Source, DuplicateKeysAreRejectedAtTheSecondOne) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\": 2, \"a\": 3}"),
            "f.json:2:10: duplicate key 'a'; remove one of the two");
  EXPECT_THAT(error_of("{\"a\": 1, \"\\u0061\": 2}"), HasSubstr(":1:10: duplicate key 'a'"));
  EXPECT_THAT(error_of("{\"a\" /* x */ : 1, \"a\"// y\n: 2}"), HasSubstr("duplicate key 'a'"));
  EXPECT_EQ(error_of("{\"a\": {\"a\": 1}, \"b\": [{\"a\": 1}, {\"a\": 2}]}"), "no error");
}

TEST(Source, NumbersOutOfRangeAreRejectedWithPosition) {
  EXPECT_THAT(error_of("{\"a\":\n 1e999}"), StartsWith("f.json:2:"));
  EXPECT_THAT(error_of("{\"a\": 1e999}"), HasSubstr("number overflow"));
}

TEST(Source, BytesThatAreNotUtf8AreRejected) {
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), HasSubstr("f.json:1:8: not valid JSON"));
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("\xef\xbb\xbf{}"), HasSubstr("byte order mark"));
}

TEST(Source, DeepNestingIsRejectedBeforeItIsParsed) {
  EXPECT_THAT(error_of(std::string(1'000'000, '[')),
              HasSubstr("f.json:1:65: nests deeper than 64"));
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "no error");
}

TEST(Source, ValuesOfSeveralTextsKeepTheirPositionsThroughMerging) {
  Source source;
  const json base = source.parse("{\n  \"a\": 1\n}\n", "base.json");
  json merged = source.parse("{\"x\": {\n \"b\": 2}}", "child.json");
  merged["x"]["a"] = base["a"];
  EXPECT_EQ(config_error_of([&] { source.fail(merged["x"]["a"], "m"); }), "base.json:2:8: m");
  EXPECT_EQ(config_error_of([&] { source.fail(merged["x"]["b"], "m"); }), "child.json:2:7: m");
  EXPECT_EQ(config_error_of([&] { source.fail_at_key(merged["x"], "b", "m"); }),
            "child.json:2:2: m");
  EXPECT_EQ(config_error_of([&] { source.fail(json(3), "m"); }), "base.json: m");
}

}  // namespace
}  // namespace harness
