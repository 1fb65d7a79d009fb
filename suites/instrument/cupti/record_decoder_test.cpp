#include "suites/instrument/cupti/record_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace suites {
namespace {

using harness::trace::CallKind;
using harness::trace::Interval;
using harness::trace::WorkKind;

/// Records of fixed size, one behind the other, as CUPTI would hand them out.
constexpr size_t kSlot = 512;

CUptiResult CUPTIAPI next_record(uint8_t* data, size_t bytes, CUpti_Activity** record) {
  uint8_t* next = *record == nullptr ? data : reinterpret_cast<uint8_t*>(*record) + kSlot;
  if (next + kSlot > data + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI callback_name(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  if (id == 1) {
    *name = domain == CUPTI_CB_DOMAIN_DRIVER_API ? "cuLaunchKernel" : "cudaLaunchKernel_v7000";
    return CUPTI_SUCCESS;
  }
  return CUPTI_ERROR_INVALID_PARAMETER;
}

class Block {
 public:
  template <class Record>
  void add(const Record& record) {
    static_assert(sizeof(Record) <= kSlot);
    bytes_.resize(bytes_.size() + kSlot);
    std::memcpy(bytes_.data() + bytes_.size() - kSlot, &record, sizeof record);
  }
  uint8_t* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<uint8_t> bytes_;
};

CUpti_ActivityKernel10 kernel(const char* name, uint64_t start, uint64_t end,
                              uint32_t correlation) {
  CUpti_ActivityKernel10 record;
  std::memset(&record, 0, sizeof record);
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = name;
  record.start = start;
  record.end = end;
  record.streamId = 7;
  record.correlationId = correlation;
  record.graphNodeId = 0x500000003ULL;
  return record;
}

CUpti_ActivityAPI call(CUpti_ActivityKind kind, uint32_t id, uint64_t start, uint64_t end,
                       uint32_t thread, uint32_t correlation) {
  CUpti_ActivityAPI record;
  std::memset(&record, 0, sizeof record);
  record.kind = kind;
  record.cbid = id;
  record.start = start;
  record.end = end;
  record.threadId = thread;
  record.correlationId = correlation;
  return record;
}

CUpti_ActivityMarker2 marker(CUpti_ActivityFlag flags, uint32_t id, uint64_t time, const char* name,
                             uint32_t thread) {
  CUpti_ActivityMarker2 record;
  std::memset(&record, 0, sizeof record);
  record.kind = CUPTI_ACTIVITY_KIND_MARKER;
  record.flags = flags;
  record.id = id;
  record.timestamp = time;
  record.name = name;
  record.objectId.pt.threadId = thread;
  return record;
}

harness::trace::Trace decode(std::initializer_list<Block*> blocks, uint64_t first_time = 0) {
  CuptiLibrary fake{};
  fake.next_record = next_record;
  fake.callback_name = callback_name;
  RecordDecoder decoder(fake);
  for (Block* block : blocks) decoder.read(block->data(), block->size());
  return decoder.finish({}, first_time);
}

TEST(RecordDecoder, WhatBeginsBeforeTheFirstTimeIsLeftOut) {
  Block block;
  for (const uint64_t at : {1'000, 2'000}) {
    const auto id = static_cast<uint32_t>(at);
    block.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, id, at, "step", 11));
    block.add(call(CUPTI_ACTIVITY_KIND_RUNTIME, 1, at + 10, at + 20, 11, id));
    block.add(kernel("k", at + 30, at + 40, id));
    block.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_END, id, at + 100, nullptr, 11));
  }
  EXPECT_EQ(decode({&block}).ranges.size(), 2u);
  const auto trace = decode({&block}, 1'500);
  ASSERT_EQ(trace.ranges.size(), 1u);
  EXPECT_EQ(trace.ranges[0].time, (Interval{0, 100}));
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_EQ(trace.calls[0].time, (Interval{10, 20}));
  ASSERT_EQ(trace.work.size(), 1u);
  EXPECT_EQ(trace.work[0].time, (Interval{30, 40}));
}

TEST(RecordDecoder, EndsMayComeBeforeStartsAndTimesStartAtZero) {
  Block first, second;
  first.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_END, 5, 1'000'400, nullptr, 11));
  first.add(kernel("_ZN2ns1kIfEEvPT_", 1'000'300, 1'000'350, 42));
  second.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 5, 1'000'000, "step", 11));
  second.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 6, 1'000'100, "never ends", 11));
  second.add(call(CUPTI_ACTIVITY_KIND_RUNTIME, 1, 1'000'200, 1'000'210, 11, 42));
  second.add(call(CUPTI_ACTIVITY_KIND_DRIVER, 1, 1'000'202, 1'000'208, 11, 42));
  second.add(call(CUPTI_ACTIVITY_KIND_RUNTIME, 99, 1'000'220, 1'000'230, 12, 43));
  const auto trace = decode({&first, &second});
  ASSERT_EQ(trace.ranges.size(), 1u);
  EXPECT_EQ(trace.ranges[0].time, (Interval{0, 400}));
  EXPECT_EQ(trace.name_of(trace.ranges[0].name), "step");
  EXPECT_EQ(trace.ranges[0].thread, 11);
  EXPECT_EQ(trace.open_ranges, 1);
  ASSERT_EQ(trace.work.size(), 1u);
  EXPECT_EQ(trace.work[0].time, (Interval{300, 350}));
  EXPECT_EQ(trace.name_of(trace.work[0].name), "void ns::k<float>(float*)");
  EXPECT_EQ(trace.work[0].graph_node, 1);
  ASSERT_EQ(trace.calls.size(), 3u);
  EXPECT_EQ(trace.calls[0].kind, CallKind::kLaunch);
  EXPECT_EQ(trace.name_of(trace.calls[1].name), "cuLaunchKernel");
  EXPECT_EQ(trace.name_of(trace.calls[2].name), "unknown call");
  EXPECT_EQ(trace.calls[2].kind, CallKind::kOther);
}

TEST(RecordDecoder, CopiesSetsWaitsAndRecordsWithoutTimes) {
  Block block;
  CUpti_ActivityMemcpy6 copy;
  std::memset(&copy, 0, sizeof copy);
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  copy.bytes = 64;
  copy.start = 110;
  copy.end = 120;
  block.add(copy);
  copy.start = 0;
  block.add(copy);
  CUpti_ActivityMemset4 set;
  std::memset(&set, 0, sizeof set);
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.bytes = 8;
  set.start = 100;
  set.end = 105;
  block.add(set);
  CUpti_ActivitySynchronization2 wait;
  std::memset(&wait, 0, sizeof wait);
  wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
  wait.start = 130;
  wait.streamId = 9;
  block.add(wait);
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  block.add(wait);
  block.add(kernel("backwards", 140, 135, 1));
  const auto trace = decode({&block});
  ASSERT_EQ(trace.work.size(), 2u);
  EXPECT_EQ(trace.work[0].kind, WorkKind::kCopy);
  EXPECT_EQ(trace.name_of(trace.work[0].name), "DtoH");
  EXPECT_EQ(trace.work[0].time, (Interval{10, 20}));
  EXPECT_EQ(trace.work[1].kind, WorkKind::kSet);
  EXPECT_EQ(trace.foreign_times, 2);
  ASSERT_EQ(trace.waits.size(), 1u);
  EXPECT_EQ(trace.waits[0].at, 30);
  EXPECT_EQ(trace.waits[0].stream, 9);
}

TEST(RecordDecoder, NodesOfGraphsHaveTheRangeOfTheirCapture) {
  CuptiLibrary fake{};
  fake.next_record = next_record;
  Block capture;
  capture.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 1, 1'000, "step", 11));
  capture.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 2, 1'100, "nsa.sel_attn", 11));
  capture.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_END, 2, 1'300, nullptr, 11));
  capture.add(marker(CUPTI_ACTIVITY_FLAG_MARKER_END, 1, 2'000, nullptr, 11));
  RecordDecoder first(fake);
  first.read(capture.data(), capture.size());
  constexpr uint64_t kCaptured = 0x400000003ULL, kClone = 0x500000003ULL;  // differ above bit 31
  const std::vector<LoggedNode> nodes = {{{kCaptured, 0}, 1'200, 11},
                                         {{kClone, kCaptured}, 1'900, 11}};
  std::vector<harness::trace::NodeMade> made;
  for (const LoggedNode& node : nodes) {
    first.take_node(node);
    made.push_back(node.made);
  }
  const auto captured = harness::trace::captured_ranges(first.finish(), made, "step");
  Block replay;
  replay.add(kernel("k", 5'000, 5'100, 42));
  RecordDecoder second(fake);
  second.read(replay.data(), replay.size());
  const auto trace = second.finish(captured);
  ASSERT_EQ(trace.graph_nodes.size(), 1u);  // those that ran
  EXPECT_EQ(trace.graph_nodes[0].node, trace.work[0].graph_node);
  ASSERT_EQ(trace.graph_nodes[0].range, 0);
  EXPECT_EQ(trace.name_of(trace.graph_ranges[0].name), "nsa.sel_attn");
}

CUptiResult CUPTIAPI node_id(CUgraphNode node, uint64_t* id) {
  if (node == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *id = reinterpret_cast<uintptr_t>(node);
  return CUPTI_SUCCESS;
}

TEST(GraphNodeLog, KeepsNodesAndTheOriginalOfClones) {
  GraphNodeLog log([]() -> uint64_t { return 7; });
  log.use(node_id);
  CUpti_GraphData data{};
  data.node = reinterpret_cast<CUgraphNode>(uintptr_t{21});
  data.originalNode = reinterpret_cast<CUgraphNode>(uintptr_t{20});
  log.on_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, data);
  log.on_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, data);
  data.originalNode = nullptr;
  log.on_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, data);
  const auto nodes = log.take();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].made.original, 0u);
  EXPECT_EQ(nodes[1].made.node, 21u);
  EXPECT_EQ(nodes[1].made.original, 20u);
  EXPECT_EQ(nodes[1].at, 7u);
  EXPECT_EQ(nodes[1].thread, own_thread());
  EXPECT_EQ(log.lost(), 1);
  EXPECT_TRUE(log.take().empty());
}

TEST(RecordDecoder, NothingGivesAnEmptyTrace) {
  Block block;
  EXPECT_TRUE(decode({&block}).work.empty());
}

}  // namespace
}  // namespace suites
