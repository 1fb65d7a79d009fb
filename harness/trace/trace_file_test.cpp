#include "harness/trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>

#include "harness/schema/error.h"
#include "harness/trace/gzip.h"
#include "harness/trace/testing.h"

namespace harness::trace {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

Trace example() {
  TraceBuilder t;
  t.range("step", 1, 0, 1000).launch(1, 110, 1).call("cudaStreamSynchronize", 1, 300, 400, 2);
  t.kernel("void k<\"1\">()", 7, 200, 400, 1, 3).copy("DtoH", 7, 400, 410, 1, 64);
  t.trace().work.push_back({.kind = WorkKind::kSet, .time = {5, 6}, .bytes = 9});
  t.trace().waits.push_back({.at = 30, .stream = 7});
  t.graph_range("forward");
  t.graph_node(3, t.graph_range("attention", 0)).graph_node(4, -1);
  t.trace().device = "card";
  t.trace().dropped = 2;
  return t.trace();
}

std::string text_of(const Trace& trace) {
  std::ostringstream out;
  write_trace(out, trace);
  return out.str();
}

fs::path temporary(const std::string& name) {
  return fs::path(testing::TempDir()) / (std::to_string(::getpid()) + "_" + name);
}

TEST(TraceFile, ReadsWhatItWrote) {
  const std::string text = text_of(example());
  const Trace again = read_trace(text, "t");
  EXPECT_EQ(text_of(again), text);
  EXPECT_EQ(again.work.size(), 3u);
  EXPECT_EQ(again.work[1].bytes, 64);
  EXPECT_EQ(again.work[0].graph_node, 3);
  EXPECT_EQ(again.calls[1].kind, CallKind::kSync);
  EXPECT_EQ(again.device, "card");
  EXPECT_EQ(again.dropped, 2);
  EXPECT_EQ(again.waits.size(), 1u);
  ASSERT_EQ(again.graph_ranges.size(), 2u);
  EXPECT_EQ(again.graph_ranges[0].parent, -1);
  EXPECT_EQ(again.graph_ranges[1].parent, 0);
  ASSERT_EQ(again.graph_nodes.size(), 2u);
  EXPECT_EQ(again.graph_nodes[0].range, 1);
  EXPECT_EQ(again.graph_nodes[1].range, -1);
}

TEST(TraceFile, CompressedFilesAreEqualForEqualTraces) {
  const fs::path first = temporary("a.gz"), second = temporary("b.gz");
  write_trace_file(first, example());
  write_trace_file(second, example());
  const auto bytes = [](const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(bytes(first), bytes(second));
  EXPECT_EQ(text_of(read_trace_file(first)), text_of(example()));
  std::ofstream(second, std::ios::binary) << bytes(first).substr(0, bytes(first).size() / 2);
  EXPECT_THAT([&] { read_trace_file(second); }, ThrowsMessage<Error>(HasSubstr("damaged")));
  EXPECT_THAT([&] { read_trace_file(temporary("absent")); },
              ThrowsMessage<Error>(HasSubstr("cannot read")));
  EXPECT_THAT([&] { read_maybe_gzip(first, 10); }, ThrowsMessage<Error>(HasSubstr("at most 10")));
  EXPECT_THAT([&] { write_text("/nowhere/at/all", "x"); },
              ThrowsMessage<Error>(HasSubstr("cannot write")));
  const fs::path plain = temporary("plain");
  write_trace_file(plain, example());
  EXPECT_EQ(bytes(plain), text_of(example()));
  EXPECT_EQ(text_of(read_trace_file(plain)), text_of(example()));
  fs::remove(plain);
  fs::remove(first);
  fs::remove(second);
}

const std::string kHeader =
    R"({"device":"","dropped":0,"foreign_times":0,"format":"nsa-trace","open_ranges":0,"version":1})"
    "\n[\"n\",\"k\"]\n";

TEST(TraceFile, RefusesByNameAndOffset) {
  const std::string at = "t at byte " + std::to_string(kHeader.size()) + ": ";
  const std::pair<std::string, std::string> cases[] = {
      {"", "t at byte 0: the line [\"end\",N] is missing"},
      {"{}\n", "\"format\":\"nsa-trace\""},
      {"nonsense\n", "\"format\":\"nsa-trace\""},
      {R"({"format":"nsa-trace","version":2})"
       "\n",
       "version must be 1, got 2"},
      {R"({"format":"nsa-trace","version":1,"device":"","dropped":-1})"
       "\n",
       "dropped must be a count"},
      {kHeader + "[\"k\",1,2,0,7,1,0]\n", at + "record \"k\" must have 8 fields, got 7"},
      {kHeader + "[\"k\",5,2,0,7,1,0,0]\n", at + "end must be >= begin 5, got 2"},
      {kHeader + "[\"k\",1,2,0,7,1,1,0]\n", at + "name must be an integer from 0 to 0, got 1"},
      {kHeader + "[\"k\",1.5,2,0,7,1,0,0]\n", at + "begin must be an integer"},
      {kHeader + "[\"k\",-1,2,0,7,1,0,0]\n", at + "begin must be an integer"},
      {kHeader + "[\"k\",1,18446744073709551615,0,7,1,0,0]\n", at + "end must be an integer"},
      {kHeader + "[\"k\",1,9007199254740992,0,7,1,0,0]\n", at + "end must be an integer"},
      {kHeader + "[\"c\",1,2,0,7,1,0,0]\n", at + "record \"c\" must have 9 fields, got 8"},
      {kHeader + "[\"a\",1,2,1,1,0,8]\n", at + "kind must be an integer from 0 to 7, got 8"},
      {kHeader + "[\"x\"]\n", at + "kind must be n, k, c, s, a, r, w, g, m or end, got x"},
      {kHeader + "[\"g\",0,1]\n", at + "parent must be an integer from 0 to 0, got 1"},
      {kHeader + "[\"g\",1,0]\n", at + "name must be an integer from 0 to 0, got 1"},
      {kHeader + "[\"m\",1,1]\n", at + "range must be an integer from 0 to 0, got 1"},
      {kHeader + "[\"m\",1]\n", at + "record \"m\" must have 3 fields, got 2"},
      {kHeader + "[]\n", at + "a record must be a list that begins with its kind"},
      {kHeader + "{\"k\":1}\n", at + "a record must be a list"},
      {kHeader + "[\"k\",\n", at + "a record must be a list"},
      {kHeader + "[\"n\",3]\n", at + "a name must be a text, got 3"},
      {kHeader + "[\"end\",3]\n", at + "lines must be 2, got 3"},
      {kHeader + "[\"end\",2]", at + "the last line has no end"},
      {kHeader + "[\"end\",2]\n[\"n\",\"x\"]\n", "nothing may stand behind"},
  };
  for (const auto& [text, want] : cases)
    EXPECT_THAT([&] { read_trace(text, "t"); }, ThrowsMessage<Error>(HasSubstr(want))) << text;
  EXPECT_NO_THROW(read_trace(kHeader + "[\"end\",2]\n", "t"));
}

TEST(TraceFile, SurvivesEveryCutAndRandomBytes) {
  const std::string text = text_of(example());
  for (size_t cut = 0; cut < text.size(); ++cut)
    EXPECT_THROW(read_trace(text.substr(0, cut), "t"), Error) << cut;
  std::mt19937 draw(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text;
    for (int k = 0; k < 3; ++k) changed[draw() % changed.size()] = static_cast<char>(draw());
    try {
      read_trace(changed, "t");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace harness::trace
