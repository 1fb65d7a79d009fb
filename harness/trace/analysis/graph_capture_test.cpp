#include "harness/trace/analysis/graph_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/schema/error.h"
#include "harness/trace/analysis/path_proof.h"
#include "harness/trace/analysis/profile.h"
#include "harness/trace/analysis/testing.h"
#include "harness/trace/testing.h"

namespace harness::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

/// Makes the trace of a capture: nodes made at a time, on a thread.
class Capture {
 public:
  Capture& node(uint64_t id, int64_t thread, Ns at, uint64_t original = 0) {
    made.push_back({id, original});
    trace.call(std::string(kNodeMade), thread, at, at, static_cast<int64_t>(made.size()));
    return *this;
  }
  CapturedRanges ranges() { return captured_ranges(trace.trace(), made, "step"); }

  TraceBuilder trace;
  std::vector<NodeMade> made;
};

/// "outer/inner" of every node.
std::map<uint64_t, std::string> paths(const CapturedRanges& captured) {
  std::map<uint64_t, std::string> texts;
  for (const auto& [node, range] : captured.range_of_node) {
    std::string text;
    for (int64_t up = range; up != -1; up = captured.ranges[static_cast<size_t>(up)].parent)
      text = captured.ranges[static_cast<size_t>(up)].name + (text.empty() ? "" : "/") + text;
    texts.emplace(node, text);
  }
  return texts;
}

/// A step that captures a forward pass of two layers and a backward pass on another thread.
Capture step_of_two_layers() {
  Capture c;
  c.trace.range("around", 1, 0, 2000).range("step", 1, 100, 1000);
  c.trace.range("forward", 1, 200, 400).range("attention", 1, 210, 250);
  c.trace.range("attention", 1, 260, 300);
  c.trace.range("backward", 1, 500, 700).range("attention.backward", 2, 550, 600);
  c.node(11, 1, 150).node(12, 1, 205).node(13, 1, 220).node(14, 1, 270).node(15, 2, 560);
  return c;
}

TEST(GraphCapture, ANodeBelongsToTheRangesOpenWhenItWasMade) {
  const CapturedRanges captured = step_of_two_layers().ranges();
  EXPECT_THAT(
      paths(captured),
      UnorderedElementsAre(Pair(11, ""), Pair(12, "forward"), Pair(13, "forward/attention"),
                           Pair(14, "forward/attention"), Pair(15, "backward/attention.backward")));
  // Each layer entered its range once.
  EXPECT_NE(captured.range_of_node.at(13), captured.range_of_node.at(14));
}

TEST(GraphCapture, AClonesOriginalDecides) {
  Capture c = step_of_two_layers();
  // Instantiation: every clone is reported as made as well, in another range.
  c.node(23, 1, 900).node(23, 1, 900, 13).node(33, 1, 910, 23).node(99, 1, 920, 98);
  const auto found = paths(c.ranges());
  EXPECT_EQ(found.at(23), "forward/attention");
  EXPECT_EQ(found.at(33), "forward/attention");
  EXPECT_FALSE(found.contains(99));  // its original was not seen
  c.node(41, 1, 930, 42).node(42, 1, 930, 41);
  EXPECT_THAT([&] { c.ranges(); }, ThrowsMessage<Error>(HasSubstr("clones of each other")));
}

/// Two replays in two steps of nodes 1 to 4, whose ids were 23, 24, 15 and 11.
TraceBuilder replays(const CapturedRanges& captured) {
  TraceBuilder t;
  for (int64_t step = 0; step < 2; ++step) {
    const Ns t0 = step * 1000, device = t0 + 300;
    t.range("step", 1, t0, t0 + 900).range("graph", 1, t0 + 10, t0 + 50);
    t.call("cudaGraphLaunch_v10000", 1, t0 + 20, t0 + 40, step + 1);
    t.kernel("row_attention", 7, device, device + 10, step + 1, 1);
    t.kernel("row_attention", 7, device + 20, device + 50, step + 1, 2);
    t.kernel("gemm", 7, device + 60, device + 100, step + 1, 3);
    t.kernel("zero", 7, device + 100, device + 110, step + 1, 4);
  }
  captured.name_nodes(t.trace(), {{23, 1}, {24, 2}, {15, 3}, {11, 4}});
  return t;
}

CapturedRanges instantiated() {
  Capture c = step_of_two_layers();
  return c.node(23, 1, 900, 13).node(24, 1, 900, 14).ranges();
}

TEST(GraphReplay, KernelsBelongToTheStageOfTheirCapture) {
  TraceBuilder t = replays(instantiated());
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.graph_kernels, 8);
  EXPECT_EQ(p.unseen_captures, 0);
  // Worked out by hand: two layers a step, 10 and 30 ns, two steps.
  const RangeRow& attention = row(p, "attention");
  EXPECT_EQ(attention.count, 4);
  EXPECT_EQ(attention.busy, 80);
  EXPECT_EQ(attention.span, 80);
  EXPECT_EQ(attention.self, 80);
  EXPECT_EQ(attention.kernels, 4);
  EXPECT_EQ(attention.host, 0);
  EXPECT_EQ(row(p, "forward").busy, 80);
  EXPECT_EQ(row(p, "forward").span, 100);  // the gap between the layers lies inside
  EXPECT_EQ(row(p, "forward").self, 0);
  EXPECT_EQ(row(p, "attention.backward").busy, 80);
  // The graph's own range holds all of it, and alone what no range was open for.
  EXPECT_EQ(row(p, "graph").busy, 180);
  EXPECT_EQ(row(p, "graph").self, 20);
  EXPECT_EQ(row(p, "graph").launches, 2);
  EXPECT_EQ(check_shares(p, 0.01), "");
}

TEST(GraphReplay, ProvesThePathOfAStage) {
  TraceBuilder t = replays(instantiated());
  const auto prove = [&](const PathRule& rule) {
    return prove_path(t.trace(), attribute(t.trace(), "step"), rule);
  };
  EXPECT_TRUE(prove({"attention", {"row_attention"}, {"gemm"}}).ok);
  EXPECT_FALSE(prove({"attention", {"gemm"}, {}}).ok);
  EXPECT_FALSE(prove({"backward", {}, {"gemm"}}).ok);
  EXPECT_THAT(prove({"graph", {}, {}}).kernels, ElementsAre("gemm", "row_attention", "zero"));
  EXPECT_FALSE(prove({"loss", {}, {"gemm"}}).ok);
}

TEST(GraphReplay, ACaptureThatWasNotSeenProvesNothing) {
  Capture c = step_of_two_layers();
  TraceBuilder t = replays(c.node(23, 1, 900, 13).ranges());  // node 24 came from elsewhere
  const Profile p = profile(t.trace(), "step");
  EXPECT_EQ(p.unseen_captures, 2);
  EXPECT_EQ(row(p, "attention").busy, 20);
  EXPECT_EQ(row(p, "graph").self, 80);
  const PathProof proof = prove_path(t.trace(), attribute(t.trace(), "step"),
                                     {"attention", {"row_attention"}, {"gemm"}});
  EXPECT_FALSE(proof.ok);
  EXPECT_EQ(proof.detail,
            "2 kernels ran from CUDA graphs whose capture was not seen: they may belong to range "
            "attention");
}

TEST(GraphCapture, LaterCapturesAreAdded) {
  CapturedRanges all = instantiated();
  Capture second;
  second.trace.range("step", 1, 0, 100).range("decode", 1, 10, 50);
  second.node(71, 1, 20);
  all.add(second.ranges());
  EXPECT_EQ(paths(all).at(71), "decode");
  EXPECT_EQ(paths(all).at(23), "forward/attention");
}

}  // namespace
}  // namespace harness::trace
