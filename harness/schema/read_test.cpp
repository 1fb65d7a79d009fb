#include "harness/schema/read.h"

#include "harness/schema/example.h"
#include "harness/schema/testing.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using testing::HasSubstr;

std::string read_error_of(const std::string& text) {
  return config_error_of([&] { read_json<Example>(text, "f.json"); });
}

TEST(Read, FillsEveryTypeAndKeepsDefaultsOfAbsentKeys) {
  const auto e = read_json<Example>(R"({"title": "t", "flag": true, "colour": "green", "bound": 2,
    "parts": [{"id": "p"}], "labels": {"a": "b"}, "any": [1, null]})",
                                    "f.json");
  EXPECT_EQ(e.title, "t");
  EXPECT_TRUE(e.flag);
  EXPECT_EQ(e.count, 7);
  EXPECT_EQ(e.colour, Colour::kGreen);
  EXPECT_EQ(e.bound, 2.0);
  ASSERT_EQ(e.parts.size(), 1u);
  EXPECT_EQ(e.parts[0].weight, 0.5);
  EXPECT_EQ(e.labels.at("a"), "b");
  EXPECT_EQ(e.any.size(), 2u);
}

struct Renamed {
  int64_t revision = 1;
  template <class V>
  static void describe(V& v) {
    v({.name = "revision", .doc = "number", .before = "edition"}, &Renamed::revision);
  }
};

TEST(Read, TheKeyOfEarlierVersionsIsReadAndNotWritten) {
  EXPECT_EQ(read_json<Renamed>(R"({"edition": 3})", "f.json").revision, 3);
  const auto both = read_json<Renamed>(R"({"revision": 2, "edition": 3})", "f.json");
  EXPECT_EQ(both.revision, 2);
  EXPECT_EQ(canonical_dump(to_json(both)), R"({"revision":2})");
  EXPECT_THAT(config_error_of([] { read_json<Renamed>(R"({"edition": "x"})", "f.json"); }),
              HasSubstr("revision must be an integer"));
}

TEST(Read, UnknownKeyNamesPlaceAndNearestName) {
  EXPECT_EQ(read_error_of("{\"title\": \"t\",\n \"parts\": [{\"id\": \"p\",\n  \"wieght\": 1}]}"),
            "f.json:3:3: unknown key 'wieght' in parts[0]; did you mean 'weight'?");
  EXPECT_EQ(read_error_of(R"({"title": "t", "zzz": 1})"),
            "f.json:1:16: unknown key 'zzz' in the document; known: title, flag, count, colour, "
            "bound, parts, labels, any");
}

TEST(Read, MissingRequiredKeyIsNamedWithItsMeaning) {
  EXPECT_EQ(read_error_of(R"({"title": "t", "parts": [{}]})"),
            "f.json:1:26: parts[0] lacks the required key 'id' (name)");
}

TEST(Read, PartialDocumentsNeedOnlyWhatIdentifies) {
  Source source;
  const auto value = source.parse(R"({"parts": [{"id": "p"}]})", "f.json");
  Reader(source, ReadMode::kPartial).read<Example>(value);
  const auto nameless = source.parse(R"({"parts": [{}]})", "g.json");
  EXPECT_THAT(config_error_of([&] { Reader(source, ReadMode::kPartial).read<Example>(nameless); }),
              HasSubstr("g.json:1:12: parts[0] lacks the required key 'id'"));
}

TEST(Read, WrongTypesNameKeyValueAndWant) {
  EXPECT_EQ(read_error_of(R"({"title": 5})"), "f.json:1:11: title must be a string, got '5'");
  EXPECT_THAT(read_error_of(R"({"title": "t", "flag": 1})"),
              HasSubstr("flag must be true or false"));
  EXPECT_THAT(read_error_of(R"({"title": "t", "count": "7"})"),
              HasSubstr("count must be an integer"));
  EXPECT_THAT(read_error_of(R"({"title": "t", "count": 7.5})"), HasSubstr("an integer, got '7.5'"));
  EXPECT_THAT(read_error_of(R"({"title": "t", "parts": {}})"), HasSubstr("parts must be a list"));
  EXPECT_THAT(read_error_of(R"({"title": "t", "parts": [1]})"),
              HasSubstr("parts[0] must be an object"));
  EXPECT_THAT(read_error_of(R"({"title": "t", "labels": {"a": 1}})"),
              HasSubstr("labels.a must be a"));
  EXPECT_THAT(read_error_of(R"({"title": "t", "bound": "x"})"),
              HasSubstr("bound must be a number"));
  EXPECT_THAT(read_error_of("[]"), HasSubstr("the document must be an object"));
}

TEST(Read, IntegersOutOfRangeAreRejected) {
  EXPECT_EQ(read_json<Example>(R"({"title": "t", "count": 9223372036854775807})", "f").count,
            INT64_MAX);
  EXPECT_EQ(read_json<Example>(R"({"title": "t", "count": 5.0})", "f").count, 5);
  EXPECT_THAT(read_error_of(R"({"title": "t", "count": 9223372036854775808})"), HasSubstr("2^63"));
  EXPECT_THAT(read_error_of(R"({"title": "t", "count": 1e300})"), HasSubstr("an integer"));
}

TEST(Read, UnknownEnumValueNamesTheNearest) {
  EXPECT_EQ(read_error_of(R"({"title": "t", "colour": "gren"})"),
            "f.json:1:26: colour must be one of red, green, got 'gren'; did you mean 'green'?");
}

TEST(Read, HostileTextStaysOneLine) {
  const std::string error = read_error_of("{\"title\": \"t\", \"a\\u001b[31m\\n`<script>|\": 1}");
  EXPECT_THAT(error, HasSubstr("unknown key 'a\\x1b[31m\\x0a`<script>|'"));
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace harness
