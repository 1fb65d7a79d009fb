// A trace as an H200 wrote it: five forward calls of the fused operator, 64/4 heads, 192/128, 8192
// tokens. The figures were counted from the file's lines by a separate script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/paths.h"
#include "harness/trace/analysis/path_proof.h"
#include "harness/trace/analysis/profile.h"
#include "harness/trace/trace_file.h"

namespace harness::trace {
namespace {

Trace recorded() {
  return read_trace_file(std::filesystem::path(base::source_dir()) /
                         "harness/trace/testdata/h200_attention.trace.jsonl.gz");
}

TEST(RecordedTrace, HoldsWhatTheFileHolds) {
  const Trace trace = recorded();
  EXPECT_EQ(trace.device, "NVIDIA H200");
  EXPECT_EQ(trace.work.size(), 290u);
  EXPECT_EQ(trace.calls.size(), 296u);
  EXPECT_EQ(trace.ranges.size(), 35u);
  EXPECT_EQ(trace.dropped + trace.open_ranges + trace.foreign_times, 0);
}

TEST(RecordedTrace, CountsAndTimesOfTheSteps) {
  const Profile p = profile(recorded(), "attention.call");
  EXPECT_EQ(p.steps, 5);
  EXPECT_EQ(p.wall, 37'204'062);
  EXPECT_EQ(p.busy, 35'056'854);
  EXPECT_EQ(p.idle.total(), p.wall - p.busy);
  EXPECT_EQ(p.launches, 290);
  EXPECT_EQ(p.kernels, 290);
  EXPECT_EQ(p.syncs, 5) << "the sixth wait of the file is that of the recording's end";
  EXPECT_EQ(p.short_kernels, 156);
  EXPECT_EQ(p.lost_launches + p.doubled_launches + p.unmatched_work + p.copies, 0);
  EXPECT_EQ(p.unattributed, 0);
  EXPECT_NEAR(p.shares_sum_pct, 100, 1e-9);
  EXPECT_EQ(check_shares(p, 1e-6), "");
}

TEST(RecordedTrace, RangesAndKernels) {
  const Profile p = profile(recorded(), "attention.call");
  const std::vector<std::pair<std::string, Ns>> want = {
      {"nsa.sel_attn", 15'718'512}, {"nsa.gate", 8'443'346},     {"nsa.cmp_attn+select", 4'023'851},
      {"nsa.rope", 3'821'391},      {"nsa.win_attn", 2'561'309}, {"nsa.compress", 484'158},
      {"attention.call", 4'287}};
  ASSERT_EQ(p.ranges.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(p.ranges[i].name, want[i].first);
    EXPECT_EQ(p.ranges[i].self, want[i].second) << want[i].first;
    EXPECT_EQ(p.ranges[i].count, 5);
  }
  EXPECT_EQ(p.ranges[0].host, 163'106);
  EXPECT_NEAR(p.ranges[0].share_pct, 44.8372, 1e-4);
  EXPECT_EQ(p.top[0].name, "nsa::device::sm80::row_attention_kernel");
  EXPECT_EQ(p.top[0].count, 5);
  EXPECT_EQ(p.top[0].sum, 15'718'512);
  EXPECT_EQ(p.top[0].min, 3'143'255);
  EXPECT_EQ(p.top[0].max, 3'144'406);
  // One kernel in two ranges has two rows.
  std::vector<std::pair<std::string, Ns>> interval;
  for (const KernelRow& row : p.top)
    if (row.name == "nsa::device::sm90::interval_attention_kernel")
      interval.emplace_back(row.range, row.sum);
  EXPECT_THAT(interval, testing::ElementsAre(std::pair{"nsa.cmp_attn+select", Ns{4'023'851}},
                                             std::pair{"nsa.win_attn", Ns{2'561'309}}));
}

}  // namespace
}  // namespace harness::trace
