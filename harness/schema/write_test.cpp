#include "harness/schema/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "harness/schema/error.h"
#include "harness/schema/example.h"
#include "harness/schema/read.h"

namespace harness {
namespace {

using nlohmann::json;

TEST(Write, EveryFieldIsWritten) {
  EXPECT_EQ(canonical_dump(to_json(Example{.title = "t"})),
            R"({"any":{},"bound":null,"colour":"red","count":7,"flag":false,"labels":{},)"
            R"("parts":[],"title":"t"})");
}

struct Measured {
  double value = 0;
  std::optional<double> bound = {};
  std::string reason = "none";
  template <class V>
  static void describe(V& v) {
    v({.name = "value", .doc = "always written"}, &Measured::value);
    v({.name = "bound", .doc = "null when there is none", .brief = true}, &Measured::bound);
    v({.name = "reason", .doc = "why", .brief = true}, &Measured::reason);
  }
};

TEST(Write, BriefFieldsAreLeftOutWhereTheyHaveTheirDefault) {
  EXPECT_EQ(canonical_dump(to_json(Measured{})), R"({"value":0.0})");
  EXPECT_EQ(canonical_dump(to_json(Measured{.bound = 2, .reason = ""})),
            R"({"bound":2.0,"reason":"","value":0.0})");
  EXPECT_EQ(read_json<Measured>(R"({"value":1})", "f").reason, "none");
  EXPECT_EQ(canonical_dump(defaults_json<Measured>()),
            R"({"bound":null,"reason":"none","value":0.0})");
}

TEST(Write, ReadingItBackGivesTheSameText) {
  Example e{.title = "a\"b\n", .flag = true, .count = -3, .colour = Colour::kGreen, .bound = 0.1};
  e.parts = {{"p", 1e-300}, {"q", 3}};
  e.labels = {{"k", "v"}};
  e.any = json{{"deep", {1, 2.5, nullptr}}};
  const std::string text = canonical_dump(to_json(e));
  EXPECT_EQ(canonical_dump(to_json(read_json<Example>(text, "f"))), text);
  EXPECT_EQ(canonical_dump(to_json(read_json<Example>(pretty_dump(to_json(e)), "f"))), text);
}

TEST(CanonicalDump, SortsKeysAndRoundTripsNumbers) {
  EXPECT_EQ(canonical_dump(json::parse(R"({"b": 0.1, "a": [1, 1.0, 1e22, 5e-324]})")),
            R"({"a":[1,1.0,1e+22,5e-324],"b":0.1})");
}

TEST(LinesDump, ALineAKeyAndInItsListsALineAnElement) {
  const std::string text =
      lines_dump(json::parse(R"({"b": [{"x": 1}, [2, 3]], "a": {"y": [4]}, "c": []})"));
  EXPECT_EQ(text, "{\n\"a\":{\"y\":[4]},\n\"b\":[\n{\"x\":1},\n[2,3]],\n\"c\":[]}\n");
  EXPECT_EQ(json::parse(text).dump(), R"({"a":{"y":[4]},"b":[{"x":1},[2,3]],"c":[]})");
  EXPECT_EQ(lines_dump(json::object()), "{}\n");
  EXPECT_EQ(lines_dump(json::array({1})), "[1]\n");
}

TEST(CanonicalDump, NonFiniteNumbersAreErrorsThatNameThePlace) {
  const json bad = {{"a", {1.0, std::numeric_limits<double>::quiet_NaN()}}};
  try {
    canonical_dump(bad);
    FAIL() << "wrote NaN";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("number at '/a/1' is not finite"));
  }
}

TEST(CanonicalDump, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  EXPECT_EQ(canonical_dump(json("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace harness
