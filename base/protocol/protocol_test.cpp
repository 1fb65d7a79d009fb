#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "base/protocol/case.h"
#include "base/protocol/emitter.h"

namespace base::protocol {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string scratch(const std::string& name) {
  const auto path = std::filesystem::path(testing::TempDir()) / (name + std::to_string(::getpid()));
  std::filesystem::remove(path);
  return path;
}

std::vector<nlohmann::json> read_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Case, PrintedAndParsedIsTheSame) {
  CaseIn in{.phase = "ranges_ab", .kind = "ranges_ab", .group = "g01", .mode = "time", .seed = 7};
  in.args = {{"s", 256}, {"b", 2}};
  in.cases = {{.id = "v2 | `x`\n", .args = {{"s", 512}}}};
  in.switches = {{"NSA_X", "1"}};
  in.out = "/tmp/out";
  const auto line = print_case(in);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  std::istringstream stream(line + "\n");
  const auto back = read_case(stream);
  EXPECT_EQ(to_object(back), to_object(in));
  EXPECT_EQ(merged_args(back, back.cases[0]), (nlohmann::json{{"s", 512}, {"b", 2}}));
}

TEST(Case, RefusesInvalidCases) {
  const auto text_of = [](const std::string& line) {
    try {
      parse_case(line);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CaseIn in{.phase = "p", .kind = "k", .group = "g01"};
  EXPECT_EQ(text_of(print_case(in)), "cases must not be empty");
  in.cases = {{.id = "a"}};
  EXPECT_EQ(text_of(print_case(in)), "accepted");
  auto object = to_object(in);
  object["sed"] = 3;
  EXPECT_EQ(text_of(object.dump()), "unknown field 'sed'");
  object.erase("sed");
  object["seed"] = "3";
  EXPECT_EQ(text_of(object.dump()), "seed must be an integer, got \"3\"");
  object.erase("seed");
  EXPECT_EQ(text_of(object.dump()), "seed is missing");
  object["seed"] = 0;
  object["mode"] = "tune";
  EXPECT_EQ(text_of(object.dump()), "mode must be check, time, profile or trace, got \"tune\"");
  EXPECT_THAT(text_of(R"({"v":1,"v":1})"), testing::HasSubstr("key \"v\" is given twice"));
  object["v"] = 2;
  EXPECT_EQ(text_of(object.dump()), "v must be 1, got 2; engine and worker differ");
  EXPECT_NE(text_of("{\"v\":1").find("case line on standard input: not valid JSON: "),
            std::string::npos);
}

TEST(EmitterTest, WritesWholeLinesThatCount) {
  const auto path = scratch("lines");
  Emitter emitter(path);
  emitter.hello({.program = "p", .build_id = "b"});
  emitter.beat(
      {.case_id = "a", .step = 1, .of = 2, .at = "forward", .rate = 3.5, .rate_unit = "tok_s"});
  emitter.metric({.case_id = "a", .name = "x_count", .value = 3, .unit = "count"});
  emitter.end_case("a");
  emitter.done();
  const auto lines = read_lines(path);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["type"], "hello");
  EXPECT_EQ(lines[0]["t"], 0.0);
  EXPECT_EQ(lines[0]["pid"], ::getpid());
  EXPECT_EQ(lines[1]["rate"], 3.5);
  EXPECT_EQ(lines[4]["lines"], 4);
}

TEST(EmitterTest, NonFiniteBecomesNullWithReason) {
  const auto path = scratch("nan");
  Emitter emitter(path);
  emitter.sample({.case_id = "a", .series = "s", .value = kNan, .unit = "ms"});
  emitter.metric({.name = "m_s", .value = -INFINITY, .unit = "s", .reason = "why"});
  emitter.table({.id = "t", .columns = {"c"}, .rows = {{1.0}, {kNan}}});
  const auto lines = read_lines(path);
  EXPECT_TRUE(lines[0]["value"].is_null());
  EXPECT_EQ(lines[0]["reason"], "value is nan");
  EXPECT_EQ(lines[1]["reason"], "why; value is -inf");
  EXPECT_EQ(lines[2]["reason"], "rows.1.0 is nan");
}

TEST(EmitterTest, HostileStringsStayData) {
  const auto path = scratch("hostile");
  Emitter emitter(path);
  emitter.fail_case("a|`b`<script>", "bad \xff\xfe bytes\n\x1b[31mred");
  const auto lines = read_lines(path);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["case"], "a|`b`<script>");
  EXPECT_EQ(lines[0]["reason"], "bad \xef\xbf\xbd\xef\xbf\xbd bytes\n\x1b[31mred");
}

TEST(EmitterTest, ThreadsDoNotMixLines) {
  const auto path = scratch("threads");
  {
    Emitter emitter(path);
    const auto talk = [&] {
      for (int i = 0; i < 500; i++) emitter.beat({.step = i, .of = 500});
    };
    std::thread other(talk);
    talk();
    other.join();
    EXPECT_EQ(emitter.lines(), 1000);
  }
  EXPECT_EQ(read_lines(path).size(), 1000u);
}

TEST(EmitterTest, GoesOnBehindTheHalfLineOfAKilledProcess) {
  const auto path = scratch("killed");
  std::ofstream(path) << "{\"type\":\"beat\"}\n{\"type\":\"be";
  for (const char* build : {"b", "c"})
    Emitter(path, Emitter::Existing::kAppend).hello({.program = "p", .build_id = build});
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u) << "no empty line behind a whole one";
  EXPECT_EQ(lines[1], "{\"type\":\"be") << "evidence stays";
  EXPECT_EQ(nlohmann::json::parse(lines[2], nullptr, false).value("build_id", ""), "b");
  EXPECT_EQ(nlohmann::json::parse(lines[3], nullptr, false).value("build_id", ""), "c");
}

TEST(EmitterTest, RefusesLeftoversAndFullDisks) {
  const auto path = scratch("stale");
  std::ofstream(path) << "old\n";
  EXPECT_THROW(Emitter{path}, Error);
  Emitter full("/dev/full");
  try {
    full.done();
    FAIL() << "a full disk was not noticed";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "result channel: /dev/full cannot be written: No space left on device; make room "
                 "there, then run again");
  }
}

}  // namespace
}  // namespace base::protocol
