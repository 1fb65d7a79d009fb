#include "base/protocol/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace base::protocol {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kHello =
    R"({"type":"hello","t":0,"v":1,"program":"p","build_id":"b","pid":1,"rank":0,"world":1,"device":"cpu"})"
    "\n";
const std::string kBeat = R"({"type":"beat","t":0.1,"step":1,"of":2})"
                          "\n";
const std::string kSample =
    R"({"type":"sample","t":0.1,"case":"a","series":"s","value":1.5,"unit":"ms","round":0,"order":0})"
    "\n";
const std::string kEndA = R"({"type":"case","t":0.2,"case":"a","status":"ok"})"
                          "\n";
std::string done(int lines) {
  return R"({"type":"done","t":0.3,"lines":)" + std::to_string(lines) + "}\n";
}

std::vector<std::string> names(const std::string& text, const std::string& mode = "time") {
  std::vector<std::string> found;
  for (const auto& v : read_transcript(text, {.mode = mode, .cases = {"a"}}).violations)
    found.push_back(v.name);
  return found;
}

TEST(LineReaderTest, AGoodFileHasNoViolation) {
  const auto text = kHello + kBeat + kSample + kEndA + done(4);
  EXPECT_THAT(names(text), IsEmpty());
  const auto transcript = read_transcript(text, {.mode = "time", .cases = {"a"}});
  ASSERT_EQ(transcript.lines.size(), 5u);
  EXPECT_EQ(std::get<Sample>(transcript.lines[2].message).value, 1.5);
  EXPECT_EQ(transcript.ended.at("a").status, "ok");
}

TEST(LineReaderTest, CutAnywhereReadsTheSame) {
  const auto text = kHello + kBeat + kSample + kEndA + done(4);
  for (size_t cut = 0; cut <= text.size(); cut++) {
    LineReader reader({.mode = "time", .cases = {"a"}});
    reader.feed(text.substr(0, cut));
    reader.feed(text.substr(cut));
    ASSERT_THAT(reader.finish(), IsEmpty()) << cut;
  }
}

TEST(LineReaderTest, EveryPrefixLacksDoneAndNothingElseOfItsOwn) {
  const auto text = kHello + kBeat + kSample + kEndA + done(4);
  for (size_t cut = 0; cut < text.size(); cut++) {
    const auto found = names(text.substr(0, cut));
    ASSERT_FALSE(found.empty()) << cut;
    ASSERT_EQ(found.back(), "NO_DONE") << cut;
    for (const auto& name : found)
      ASSERT_TRUE(name == "NO_HELLO" || name == "MISSING_CASE" || name == "NO_DONE") << name;
  }
}

TEST(LineReaderTest, EachRuleHasItsName) {
  EXPECT_THAT(names(""), ElementsAre("NO_HELLO", "MISSING_CASE", "NO_DONE"));
  EXPECT_THAT(names(kBeat + kEndA + done(2)), ElementsAre("NO_HELLO"));
  EXPECT_THAT(names(kHello + kHello + kEndA + done(3)), ElementsAre("HELLO_TWICE"));
  EXPECT_THAT(names(kHello + kEndA + done(1)), ElementsAre("BAD_COUNT"));
  EXPECT_THAT(names(kHello + kEndA + done(2) + kBeat), ElementsAre("AFTER_DONE"));
  EXPECT_THAT(names(kHello + kEndA + done(2) + "{"), ElementsAre("AFTER_DONE"));
  EXPECT_THAT(names(kHello + done(1)), ElementsAre("MISSING_CASE"));
  EXPECT_THAT(names(kHello + kEndA + kEndA + done(3)), ElementsAre("DUPLICATE_CASE"));
  EXPECT_THAT(names(kHello + kSample + kEndA + done(3), "check"), ElementsAre("BAD_MODE"));
  const std::string foreign = R"({"type":"case","t":0,"case":"b","status":"ok"})"
                              "\n";
  EXPECT_THAT(names(kHello + kEndA + foreign + done(3)), ElementsAre("FOREIGN_CASE"));
}

// "At least 59 were compared" is not shown by 59 words about one.
TEST(LineReaderTest, ACheckHoldsOnce) {
  const auto check = [](const std::string& id, bool ok) {
    return R"({"type":"check","t":0,"case":"a","id":")" + id + R"(","ok":)" +
           (ok ? "true" : "false") + "}\n";
  };
  EXPECT_THAT(names(kHello + check("x", true) + check("x", true) + kEndA + done(4)),
              ElementsAre("DUPLICATE_CHECK"));
  EXPECT_THAT(names(kHello + check("x", true) + check("y", true) + kEndA + done(4)), IsEmpty());
  EXPECT_THAT(names(kHello + check("x", false) + check("x", false) + kEndA + done(4)), IsEmpty())
      << "a failed check may be repeated";
}

TEST(LineReaderTest, ABuildIdIsAskedForWhereTheEngineHasOne) {
  const auto names_of = [](const std::string& hello, bool asks) {
    std::vector<std::string> names;
    for (const auto& broken :
         read_transcript(hello + kEndA + done(2),
                         {.mode = "check", .cases = {"a"}, .asks_build_id = asks})
             .violations)
      names.push_back(broken.name);
    return names;
  };
  std::string silent = kHello;
  const size_t at = silent.find("\"build_id\":\"");
  ASSERT_NE(at, std::string::npos);
  silent.replace(at, silent.find('"', at + 12) + 1 - at, "\"build_id\":\"\"");
  EXPECT_THAT(names_of(silent, true), ElementsAre("NO_BUILD_ID"));
  EXPECT_THAT(names_of(silent, false), IsEmpty());
  EXPECT_THAT(names_of(kHello, true), IsEmpty());
}

TEST(LineReaderTest, ReportsMalformedLinesAsGarbage) {
  for (const std::string line :
       {"hello there", "", "[1]", "{}", R"({"type":"beat"})", R"({"type":"wave","t":0})",
        R"({"type":"beat","t":0,"step":"x","of":2})",
        R"({"type":"beat","t":0,"step":1,"of":2,"color":1})",
        R"({"type":"case","t":0,"case":"a","status":"fine"})",
        R"({"type":"metric","t":0,"name":"m","value":"x","unit":"s"})",
        R"({"type":"table","t":0,"id":"i","columns":["a"],"rows":[[1,2]]})", "\xff\xfe"}) {
    EXPECT_THAT(names(kHello + line + "\n" + kEndA + done(3)), ElementsAre("GARBAGE")) << line;
  }
}

// nlohmann copies and prints by recursion: without a bound, such a line ends the engine.
TEST(LineReaderTest, EndlessNestingIsGarbage) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  for (const std::string& line :
       {deep, R"({"type":"metric","t":0,"name":"m","unit":"s","value":)" + deep + "}",
        R"({"type":"beat","t":0,"step":1,"of":1,"extra":)" + deep + "}"})
    EXPECT_THAT(names(kHello + line + "\n" + kEndA + done(3)), ElementsAre("GARBAGE"));
  const std::string quoted = R"({"type":"case","t":0,"case":"a","status":"failed","reason":")" +
                             std::string(100, '[') + R"(\"{"})" + "\n";
  EXPECT_THAT(names(kHello + quoted + done(2)), IsEmpty()) << "brackets in texts nest nothing";
}

TEST(LineReaderTest, NonFiniteNumbersAreRefused) {
  for (const std::string value : {"NaN", "-nan", "Infinity", "-inf", "1e999", "null"}) {
    const auto line = R"({"type":"metric","t":0,"name":"m","unit":"s","value":)" + value + "}\n";
    EXPECT_THAT(names(kHello + line + kEndA + done(3)), ElementsAre("NON_FINITE")) << value;
  }
  const std::string null_with_reason =
      R"({"type":"metric","t":0,"name":"m","unit":"s","value":null,"reason":"value is nan"})"
      "\n";
  EXPECT_THAT(names(kHello + null_with_reason + kEndA + done(3)), IsEmpty());
}

}  // namespace
}  // namespace base::protocol
